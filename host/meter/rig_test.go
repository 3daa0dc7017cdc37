package meter_test

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/routerd/routerd/host/meter"
)

// plenty is more fuel than any smith module uses.
const plenty = 1 << 40

// rig is one engine on which original and metered modules run in turn.
type rig struct {
	name  string
	seed  maphash.Seed // one for all rigs of a test
	rt    wazero.Runtime
	now   *machine // whose fuel the refuel import grants
	calls []uint64 // what imports were told, in order
}

// newRigs makes a rig of each engine. They live as long as the test.
func newRigs(t testing.TB) []*rig {
	t.Helper()
	seed := maphash.MakeSeed()
	return []*rig{
		newRig(t, "interpreter", seed, wazero.NewRuntimeConfigInterpreter()),
		newRig(t, "compiler", seed, wazero.NewRuntimeConfigCompiler()),
	}
}

func newRig(t testing.TB, name string, seed maphash.Seed, config wazero.RuntimeConfig) *rig {
	t.Helper()
	ctx := context.Background()
	g := &rig{name: name, seed: seed, rt: wazero.NewRuntimeWithConfig(ctx, config.WithMemoryLimitPages(64).WithDebugInfoEnabled(false))}
	t.Cleanup(func() { g.rt.Close(ctx) })
	refuel := func(ctx context.Context, mod api.Module, stack []uint64) { g.now.refuel(ctx, mod, stack) }
	mix := func(_ context.Context, stack []uint64) {
		g.calls = append(g.calls, stack[0])
		stack[0] = stack[0]*0x9e3779b97f4a7c15 + 1
	}
	tick := func(context.Context, []uint64) { g.calls = append(g.calls, 0) }
	_, err := g.rt.NewHostModuleBuilder(meter.RefuelModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(refuel), nil, nil).Export(meter.RefuelName).Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	i64s := []api.ValueType{api.ValueTypeI64}
	_, err = g.rt.NewHostModuleBuilder("smith").
		NewFunctionBuilder().WithGoFunction(api.GoFunc(mix), i64s, i64s).Export("mix").
		NewFunctionBuilder().WithGoFunction(api.GoFunc(tick), nil, nil).Export("tick").Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// seen is what one call, or the instantiation, did.
type seen struct {
	Call    string
	Results []uint64
	Trap    string // "" for none
	Globals []uint64
	Table   [2]uint64 // entries, null ones
	Memory  uint64    // hash
	Pages   uint32
	Imports []uint64
}

// call is one call of a plan.
type call struct {
	name string
	args []uint64
}

// planned are calls of all functions of a module, each with two lists of arguments.
func planned(rnd *rand.Rand, mod api.Module) []call {
	var plan []call
	if mod == nil {
		return nil
	}
	for i := range len(mod.ExportedFunctionDefinitions()) {
		name := fmt.Sprintf("f%d", i)
		f := mod.ExportedFunction(name)
		if f == nil {
			break
		}
		for range 2 {
			c := call{name: name}
			for _, kind := range f.Definition().ParamTypes() {
				c.args = append(c.args, argument(rnd, kind)...)
			}
			plan = append(plan, c)
		}
	}
	return plan
}

func argument(rnd *rand.Rand, kind api.ValueType) []uint64 {
	word := pickWord(rnd)
	switch kind {
	case api.ValueTypeI32, api.ValueTypeF32:
		return []uint64{word & 0xffffffff}
	case v128:
		return []uint64{word, pickWord(rnd)}
	case funcref, externref:
		return []uint64{0}
	}
	return []uint64{word}
}

// corners are words that are special as integers, as one float or as two.
var corners = []uint64{
	0, 1, 1 << 31, 1<<32 - 1, 1 << 63, 1<<64 - 1, 0x7fff_ffff_7fff_ffff, 0x8000_0000_8000_0000,
	0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000000, 0xfff0000000000001, 0x3ff00000bf800000,
	0x7fc00000_ffc00000, 0x7f800000_ff800000, 0x7fa00000_80000000, 0x41e0000000000000, 0xc3e0000000000000, 0x4f000000_cf000000,
}

func pickWord(rnd *rand.Rand) uint64 {
	switch rnd.IntN(3) {
	case 0:
		return uint64(rnd.IntN(100))
	case 1:
		return corners[rnd.IntN(len(corners))]
	}
	return rnd.Uint64()
}

// run is one module on a rig.
type run struct {
	g    *rig
	code wazero.CompiledModule
	mod  api.Module // nil after a failed instantiation
	m    *machine   // of a metered module
	seen []seen
	used []uint64 // fuel of each call, of a metered module
}

// start instantiates a module; a trap of its start section is the first thing seen.
func (g *rig) start(wasm []byte, m *machine) (*run, error) {
	ctx := context.Background()
	r := &run{g: g, m: m}
	if m == nil {
		m = &machine{} // refuel is never called
	}
	g.now, g.calls = m, nil
	compiled, err := g.rt.CompileModule(ctx, wasm)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.name, err)
	}
	r.code = compiled
	mod, err := g.rt.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		r.seen = append(r.seen, seen{Call: "start", Trap: trapOf(err), Imports: g.calls})
		return r, nil
	}
	r.mod = mod
	if r.m != nil {
		m.mod, m.fuel = mod, mod.ExportedGlobal(meter.FuelGlobal).(api.MutableGlobal)
	}
	r.seen = append(r.seen, r.state(seen{Call: "start", Imports: g.calls}))
	return r, nil
}

func (r *run) close() {
	if r.mod != nil {
		r.mod.Close(context.Background())
	}
	r.code.Close(context.Background())
}

// call makes one call under a budget and notes what is seen.
func (r *run) call(c call, budget uint64) seen {
	const steps = 400
	r.g.calls = nil
	r.mod.ExportedGlobal("steps").(api.MutableGlobal).Set(steps)
	r.fill(budget)
	results, err := r.mod.ExportedFunction(c.name).Call(context.Background(), c.args...)
	if r.m != nil {
		r.used = append(r.used, r.m.granted-r.m.fuel.Get())
	}
	kinds := r.mod.ExportedFunction(c.name).Definition().ResultTypes()
	s := seen{Call: c.name, Results: values(kinds, results), Trap: trapOf(err), Imports: r.g.calls}
	if s.Trap == spent && r.m.debt > 1<<61 {
		s.Trap = outOfBounds // an operation too long to be granted, which no memory here is large enough for
	}
	return r.state(s)
}

// fill sets the fuel of a metered module.
func (r *run) fill(budget uint64) {
	if r.m != nil {
		first := min(budget, slice)
		if r.m.exactly {
			first = 0
		}
		r.m.rest, r.m.granted, r.m.debt = budget-first, first, 0
		r.m.fuel.Set(first)
	}
}

const (
	spent       = "fuel spent"
	outOfBounds = "out of bounds memory access"
)

func trapOf(err error) string {
	if err == nil || errors.Is(err, errSpent) {
		return map[bool]string{true: "", false: spent}[err == nil]
	}
	text := err.Error()
	if _, after, ok := strings.Cut(text, "wasm error: "); ok {
		text = after
	}
	first, _, _ := strings.Cut(text, "\n")
	first, _, _ = strings.Cut(first, " (recovered by wazero)")
	if _, after, ok := strings.Cut(first, "]: "); ok && strings.HasPrefix(first, "data[") {
		return "data: " + after // the numbers change where neighbours are joined
	}
	return first
}

// values are results without what means nothing: the upper halves of 32-bit ones, and where a reference points.
func values(kinds []api.ValueType, words []uint64) []uint64 {
	var out []uint64
	for _, kind := range kinds {
		if len(words) == 0 {
			break
		}
		word := words[0]
		words = words[1:]
		switch kind {
		case api.ValueTypeI32, api.ValueTypeF32:
			word &= 0xffffffff
		case funcref, externref:
			word = min(word, 1)
		case v128:
			out, word, words = append(out, word), words[0], words[1:]
		}
		out = append(out, word)
	}
	return out
}

// state adds memory, globals and table.
func (r *run) state(s seen) seen {
	ctx := context.Background()
	r.fill(plenty)
	probe := func(name string) []uint64 {
		f := r.mod.ExportedFunction(name)
		if f == nil {
			return nil
		}
		v, err := f.Call(ctx)
		if err != nil {
			s.Trap += "; " + name + ": " + trapOf(err)
		}
		return v
	}
	for i := 0; ; i++ {
		v := probe(fmt.Sprintf("global%d", i))
		if v == nil {
			break
		}
		s.Globals = append(s.Globals, values(r.mod.ExportedFunction(fmt.Sprintf("global%d", i)).Definition().ResultTypes(), v)...)
	}
	s.Table[0], s.Table[1] = probe("size")[0], probe("null")[0]
	memory := r.mod.Memory()
	bytes, _ := memory.Read(0, memory.Size())
	s.Memory, s.Pages = maphash.Bytes(r.g.seed, bytes), memory.Size()>>16
	return s
}
