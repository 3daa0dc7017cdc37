package meter_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"

	"github.com/routerd/routerd/host/meter"
)

var update = flag.Bool("update", false, "write the golden file anew")

const golden = "testdata/fuel1.golden"

// callee is the function that the samples of calls call; giveUp and silent tell what return costs.
const (
	callee = iota
	giveUp
	silent
	firstSample
)

// pairs is a module with two functions for each sample, the one with it first.
func pairs(all []sample) []byte {
	b := &builder{}
	t := b.typ(nil, nil)
	b.typ(one, nil)
	b.fn(t, nil)
	b.fn(t, nil, 0x0f)
	b.fn(t, nil)
	for _, s := range all {
		with := s.body(max(s.locals, 1), s.code)
		without := s.body(1, s.base)
		size := max(len(with)+1, len(without)+1, s.bodySize)
		for _, code := range [][]byte{with, without} {
			code = cat(code, repeat(size-len(code)-1, 0x01), 0x0b) // behind the return
			b.funcs = append(b.funcs, uleb(t))
			b.codes = append(b.codes, cat(uleb(uint64(len(code))), code))
		}
	}
	for i := range b.funcs {
		b.export(fmt.Sprint(i), 0, uint64(i))
	}
	b.globals = [][]byte{cat(i32, 1, i32c(0), 0x0b)}
	b.memory(1)
	b.table(funcref, 16, 60_000)
	b.elements = [][]byte{
		cat(1, 0, 7, make([]byte, 7)), {1, 0, 1, 0}, cat(0, i32c(15), 0x0b, 1, callee),
	}
	b.count, b.datas = true, [][]byte{cat(1, uleb(4096), make([]byte, 4096)), cat(1, str("dropped"))}
	return b.bytes()
}

// body is a body without its end: locals, setup, code, return.
func (s sample) body(locals uint64, code []byte) []byte {
	return cat(vec(group(locals, i32)), s.setup, code, 0x0f)
}

// measure runs the functions of the samples and returns what each costs in words.
func measure(t *testing.T, all []sample, config wazero.RuntimeConfig) []string {
	t.Helper()
	lim := meter.DefaultLimits()
	lim.Exports = 4 * len(all)
	module, err := meter.Decode(pairs(all), lim)
	if err != nil {
		t.Fatal(err)
	}
	out, err := module.Rewrite(options)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{granted: slice}
	if err := m.start(t, newRuntimeWith(t, m, config.WithMemoryLimitPages(64)), out); err != nil {
		t.Fatal(err)
	}
	used := func(f int) (uint64, error) {
		_, n, err := m.call(t, plenty, fmt.Sprint(f))
		return n, err
	}
	must := func(f int) uint64 {
		n, err := used(f)
		if err != nil {
			t.Fatalf("function %d: %v", f, err)
		}
		return n
	}
	back := must(giveUp) - must(silent)
	prices := make([]string, len(all))
	for i, s := range all {
		n, err := used(firstSample + 2*i)
		without := must(firstSample + 2*i + 1)
		if s.ends {
			without -= back
		}
		if s.callee {
			without += must(callee)
		}
		if s.bodySize > 0 {
			without = back
		}
		switch {
		case errors.Is(err, errSpent):
			prices[i] = "ends the call"
		case err != nil && trapOf(err) != "unreachable":
			t.Errorf("%s: %v", s.name, err)
		default:
			prices[i] = fmt.Sprint(int64(n - without))
		}
	}
	return prices
}

// taken parts the samples whose instruction a body may hold from the others.
func taken(all []sample) (ok, refused []sample) {
	for _, s := range all {
		if _, err := meter.Decode(pairs([]sample{s}), meter.DefaultLimits()); err != nil {
			refused = append(refused, s)
		} else {
			ok = append(ok, s)
		}
	}
	return ok, refused
}

// TestFuel1Golden measures each instruction by running it. A changed line is a changed schedule, which needs another
// name: what was certified under this one would no longer hold.
func TestFuel1Golden(t *testing.T) {
	all, refused := taken(samples())
	prices := measure(t, all, wazero.NewRuntimeConfigInterpreter())
	if diff := cmp.Diff(prices, measure(t, all, wazero.NewRuntimeConfigCompiler())); diff != "" {
		t.Errorf("prices on interpreter (-) and compiler (+):\n%s", diff)
	}
	var out strings.Builder
	out.WriteString("# What each instruction costs under " + meter.Fuel1.Name + ", measured: name, bytes, fuel.\n")
	for i, s := range all {
		fmt.Fprintf(&out, "%s\t% x\t%s\n", s.name, s.code, prices[i])
	}
	for _, s := range refused {
		fmt.Fprintf(&out, "%s\t% x\trefused\n", s.name, s.code)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(out.String(), "\n")); diff != "" {
		t.Errorf("prices (-golden +measured):\n%s", diff)
	}
}
