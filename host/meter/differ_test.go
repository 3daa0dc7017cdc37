package meter_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host/meter"
	"github.com/routerd/routerd/host/smith"
)

// forms are a module's original and metered forms. The second metered one has checks ten times as often, at which a
// machine of its own grants no more than what is owed, so that nearly each of them takes the slow path.
type forms struct{ original, metered, checked []byte }

func rewriteForms(wasm []byte) (forms, error) {
	m, err := meter.Decode(wasm, meter.DefaultLimits())
	if err != nil {
		return forms{}, err
	}
	f := forms{original: wasm}
	for size, out := range map[uint64]*[]byte{slice: &f.metered, 1000: &f.checked} {
		*out, err = m.Rewrite(meter.Options{MemoryMaxPages: 64, StartFuel: slice, Slice: size})
		if err != nil {
			return forms{}, err
		}
		if err := verify(*out); err != nil {
			return forms{}, fmt.Errorf("second decoder, slice %d: %w", size, err)
		}
	}
	return f, nil
}

// differ runs a module in all its forms with equal calls; "" where all is equal.
func differ(rigs []*rig, wasm []byte, rnd *rand.Rand) string {
	f, err := rewriteForms(wasm)
	if err != nil {
		return err.Error()
	}
	return f.differ(rigs, rnd)
}

// differ compares what is seen of the original and the metered form on each rig. Then it runs the metered forms with
// too little fuel.
func (f forms) differ(rigs []*rig, rnd *rand.Rand) string {
	var first *run
	var all, full []*run // full are the metered ones
	var plan []call
	defer func() {
		for _, r := range all {
			r.close()
		}
	}()
	for i, g := range rigs {
		metered := &machine{rest: plenty, granted: slice, exactly: i > 0}
		for _, m := range []*machine{nil, metered} {
			r, err := g.start(f.form(m), m)
			if err != nil {
				return err.Error()
			}
			all = append(all, r)
			if first == nil {
				first, plan = r, planned(rnd, r.mod)
			}
			for _, c := range plan {
				if r.mod != nil {
					r.seen = append(r.seen, r.call(c, plenty))
				}
			}
			if diff := cmp.Diff(first.seen, r.seen); diff != "" {
				return fmt.Sprintf("original on %s (-), %s, metered %v (+):\n%s", first.g.name, g.name, m != nil, diff)
			}
			if m != nil {
				full = append(full, r)
			}
		}
	}
	for i := range full[0].used {
		// What a trap leaves as used is the value at the last check or call, which differ.
		if a, b := full[0].used[i], full[1].used[i]; a != b && first.seen[i+1].Trap == "" {
			return fmt.Sprintf("call %d used %d fuel on %s and %d on %s with more checks", i, a, rigs[0].name, b, rigs[1].name)
		}
	}
	for _, r := range full {
		if diff := f.starve(r, plan, rnd); diff != "" {
			return diff
		}
	}
	return ""
}

// form is the bytes that a machine runs, nil for none.
func (f forms) form(m *machine) []byte {
	switch {
	case m == nil:
		return f.original
	case m.exactly:
		return f.checked
	}
	return f.metered
}

// starve runs the calls of a metered run again, up to one that gets less fuel than it used: it ends by fuel, with
// imports called as before up to there, or as before, when no check stood in what was left.
func (f forms) starve(full *run, plan []call, rnd *rand.Rand) string {
	if len(full.used) == 0 {
		return ""
	}
	at := rnd.IntN(len(plan))
	want, used := full.seen[at+1], full.used[at]
	if used == 0 {
		return "" // a trap before the first call: nothing is known of what it used
	}
	m := &machine{rest: plenty, granted: slice, exactly: full.m.exactly}
	r, err := full.g.start(f.form(m), m)
	if err != nil {
		return err.Error()
	}
	defer r.close()
	for _, c := range plan[:at] {
		r.call(c, plenty)
	}
	budget := rnd.Uint64N(used)
	got := r.call(plan[at], budget)
	if got.Trap != spent {
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Sprintf("%s, call %d with %d of %d fuel:\n%s", full.g.name, at, budget, used, diff)
		}
		if want.Trap == "" && used > budget+slice/5 {
			return fmt.Sprintf("%s, call %d ended with %d fuel used of %d", full.g.name, at, used, budget)
		}
		return ""
	}
	if n := len(got.Imports); n > len(want.Imports) || !slices.Equal(want.Imports[:n], got.Imports) {
		return fmt.Sprintf("call %d with %d of %d fuel called imports with %v, want a beginning of %v", at, budget, used, got.Imports, want.Imports)
	}
	return ""
}

func seeded(seed uint64) (*rand.Rand, smith.Options) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	o := smith.DefaultOptions()
	o.Unbounded = seed%4 == 0
	o.Size = []int{30, 120, 400}[seed%3]
	if seed%40 == 7 {
		o.Size, o.Functions = 3000, 12
	}
	return rnd, o
}
