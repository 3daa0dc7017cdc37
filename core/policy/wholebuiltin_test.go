package policy_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// ranks fills the columns by which rendezvous hashing knows n workers, from the
// given ones.
func ranks(t *policy.Table, ids ...int) {
	for i, id := range ids {
		t.Fill(abi.ColWorkerID)[i] = float64(id)
	}
	t.Fill(abi.ColWorkerDPRank)
}

// choose decides and returns the row.
func choose(t *testing.T, rev *policy.Revision, tb *policy.Table) int {
	t.Helper()
	var d policy.Decision
	if err := rev.Decide(t.Context(), tb, &d); err != nil {
		t.Fatal(err)
	}
	if d.By != policy.ByPolicy {
		t.Fatalf("by %s: %v", d.By, d.Fault)
	}
	return d.Row
}

// TestBoundedLoadKeepsItsBound books and frees by chance, with one key in far more
// requests than the others.
func TestBoundedLoadKeepsItsBound(t *testing.T) {
	for _, factor := range []float64{1, 1.25, 2} {
		rev := revision(t, wholeOf(policy.BoundedLoadPolicy, `{"load_factor":`+number(factor)+`}`), nil)
		rng := rand.New(rand.NewPCG(1, uint64(factor*100)))
		const n = 8
		loads, total := make([]float64, n), 0.0
		tb := table(n, rev.Columns())
		for range 3_000 {
			if row := rng.IntN(n); total > 0 && rng.IntN(5) < 2 {
				if loads[row] > 0 {
					loads[row]--
					total--
				}
				continue
			}
			tb.Reset(n, rev.Columns())
			ranks(tb, 1, 2, 3, 4, 5, 6, 7, 8)
			copy(tb.Fill(abi.ColLoadActiveRequests), loads)
			tb.SetPrefix(16, beginning(string(rune('a'+max(rng.IntN(20)-15, 0))), 20))
			tb.Seed = rng.Uint64()
			row := choose(t, rev, tb)
			loads[row]++
			total++
			if bound := math.Ceil(total / n * factor); loads[row] > bound {
				t.Fatalf("factor %v: a rank has %v requests of %v; want at most %v", factor, loads[row], total, bound)
			}
		}
	}
}

func number(v float64) string { return policy.Setting{Default: v}.Text() }

// TestKeysStayWhenOthersLeave: prefixes spread over all ranks, and when one rank
// leaves only its own move.
func TestKeysStayWhenOthersLeave(t *testing.T) {
	rev := revision(t, wholeOf(policy.BoundedLoadPolicy, ""), nil)
	const keys = 4_000
	all, fewer := []int{1, 2, 3, 4, 5, 6, 7, 8}, []int{8, 1, 2, 4, 5, 6, 7}
	counts := map[int]int{}
	where := func(key string, ids []int) int {
		tb := table(len(ids), rev.Columns())
		ranks(tb, ids...)
		tb.SetPrefix(16, beginning(key, 20))
		return ids[choose(t, rev, tb)]
	}
	for i := range keys {
		key := "k" + number(float64(i))
		before := where(key, all)
		counts[before]++
		if after := where(key, fewer); before != 3 && after != before {
			t.Fatalf("key %s moved from worker %d to %d; worker 3 has left", key, before, after)
		}
	}
	for _, id := range all {
		if got := float64(counts[id]) / keys; math.Abs(got-0.125) > 0.02 {
			t.Errorf("worker %d has %.3f of the keys; want 0.125", id, got)
		}
	}
}

func TestRanksOfOneWorkerHaveKeysOfTheirOwn(t *testing.T) {
	rev := revision(t, wholeOf(policy.BoundedLoadPolicy, ""), nil)
	seen := map[int]bool{}
	for i := range 64 {
		tb := table(4, rev.Columns())
		ranks(tb, 1, 1, 1, 1)
		for row := range 4 {
			tb.Fill(abi.ColWorkerDPRank)[row] = float64(row)
		}
		tb.SetPrefix(16, beginning("k"+number(float64(i)), 20))
		seen[choose(t, rev, tb)] = true
	}
	if len(seen) != 4 {
		t.Errorf("got keys on %d ranks; want 4", len(seen))
	}
}

// TestStickySessionStaysWhileItsWorkerIsThere keeps a binding as the affinity
// table does: to the worker that served.
func TestStickySessionStaysWhileItsWorkerIsThere(t *testing.T) {
	rev := revision(t, wholeOf(policy.StickyPolicy, ""), nil)
	rng := rand.New(rand.NewPCG(2, 3))
	bound := 0 // worker
	for step := range 500 {
		ids := rng.Perm(6)[:1+rng.IntN(6)]
		tb := table(len(ids), rev.Columns())
		tb.Seed = rng.Uint64()
		tb.SetField(abi.FieldSession, abi.ID("s"))
		least, there := math.Inf(1), false
		for i := range ids {
			ids[i]++
			load := float64(rng.IntN(10))
			tb.Fill(abi.ColLoadActiveRequests)[i] = load
			least = min(least, load)
			tb.Fill(abi.ColSessionBound)[i] = 0
			if ids[i] == bound {
				tb.Fill(abi.ColSessionBound)[i], there = 1, true
			}
		}
		ranks(tb, ids...)
		row := choose(t, rev, tb)
		if there && ids[row] != bound {
			t.Fatalf("step %d: the session moved from worker %d to %d", step, bound, ids[row])
		}
		if !there && tb.Column(abi.ColLoadActiveRequests)[row] != least {
			t.Fatalf("step %d: an unbound session went to a rank with load %v; want %v", step, tb.Column(abi.ColLoadActiveRequests)[row], least)
		}
		bound = ids[row]
	}
}

func TestWholeBuiltinsAreRefusedElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		spec  policy.Spec
		field string
		want  string
	}{
		"unknown":             {wholeOf("builtin:two-tiers", ""), "policy.use", policy.TwoTierPolicy},
		"a scorer as policy":  {wholeOf("builtin:kv-aware", ""), "policy.use", policy.StickyPolicy},
		"a policy as scorer":  {use(policy.TwoTierPolicy), "scorers[0].use", "builtin:kv-aware"},
		"a policy as picker":  {withPicker(policy.TwoTierPolicy), "picker.use", policy.BestPicker},
		"a policy as filter":  {filtered([]string{policy.TwoTierPolicy}, []string{"builtin:kv-aware"}, nil), "filters[0].use", "module:NAME"},
		"a policy as last":    {policy.Spec{Scorers: use("builtin:kv-aware").Scorers, Fallback: policy.TwoTierPolicy}, "fallback", "builtin:kv-aware"},
		"unknown config":      {wholeOf(policy.TwoTierPolicy, `{"cache":1}`), "policy.config", "cache_threshold"},
		"config out of range": {wholeOf(policy.TwoTierPolicy, `{"cache_threshold":1.5}`), "policy.config.cache_threshold", "a number from 0 to 1"},
		"config of sticky":    {wholeOf(policy.StickyPolicy, `{"ttl":1}`), "policy.config", "no configuration"},
		"half a token":        {wholeOf(policy.BoundedLoadPolicy, `{"prefix_tokens":1.5}`), "policy.config.prefix_tokens", "a whole number from 1 to 4096"},
	} {
		_, err := c.spec.Normalised()
		f, ok := errors.AsType[*fleet.FieldError](err)
		if !ok || f.Field != c.field || !strings.Contains(f.Allowed, c.want) {
			t.Errorf("%s: got %v; want a refusal of %s that says %q", name, err, c.field, c.want)
		}
	}
}

func TestWholeBuiltinIsNamed(t *testing.T) {
	rev := revision(t, wholeOf(policy.TwoTierPolicy, ""), nil)
	if diff := cmp.Diff([]policy.StageName{{Kind: abi.KindPolicy, Use: policy.TwoTierPolicy}}, rev.Stages()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEveryScorerCanBeTheFallback(t *testing.T) {
	for _, name := range policy.Builtins() {
		spec := use("module:m")
		spec.Fallback = name
		rev := revision(t, spec, modules{"module:m": faulty(policy.Fault{Code: "E_TRAP", Reason: "trap"})})
		d := decided(t, rev, 3)
		if d.By != policy.ByFallback {
			t.Errorf("%s: by %s", name, d.By)
		}
	}
}
