package policy_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// picked are the rows that rev picks for many seeds.
func picked(t *testing.T, rev *policy.Revision, tb *policy.Table) (rows []int) {
	t.Helper()
	var d policy.Decision
	for seed := range uint64(200) {
		tb.Seed = policy.SplitMix64(seed)
		if err := rev.Decide(t.Context(), tb, &d); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, d.Row)
	}
	return rows
}

func same(a, b []int) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestOnlyTheRatioOfWeightsCounts(t *testing.T) {
	weighed := func(picker, config string, weights ...float64) *policy.Revision {
		spec := use("module:a", "module:b", "module:c")
		for i := range weights {
			spec.Scorers[i].Weight, spec.Scorers[i].Normalise = ptr(weights[i]), "minmax"
		}
		spec.Picker = &policy.PickerSpec{StageSpec: policy.StageSpec{Use: picker, Config: json.RawMessage(config)}}
		return revision(t, spec, modules{"module:a": scores(3, 9, 1, 4), "module:b": scores(2, 0, 8, 8), "module:c": scores(5, 1, 1, 0)})
	}
	for _, p := range [][2]string{{policy.BestPicker, ""}, {policy.SoftmaxPicker, `{"temperature":0.3}`}, {policy.TwoChoicesPicker, ""}} {
		a, b := weighed(p[0], p[1], 3, 2, 2), weighed(p[0], p[1], 6, 4, 4)
		if !same(picked(t, a, table(4, a.Columns())), picked(t, b, table(4, b.Columns()))) {
			t.Errorf("%s: the weights 3, 2, 2 and 6, 4, 4 pick differently", p[0])
		}
	}
}

func TestOneWeightedLoadTermIsLeastLoad(t *testing.T) {
	plain, weighed := revision(t, use("builtin:least-load"), nil), use("builtin:least-load")
	for _, w := range []float64{0.001, 1, 7, 1e6} {
		for _, how := range []string{"none", "minmax", "rank"} {
			weighed.Scorers[0].Weight, weighed.Scorers[0].Normalise = ptr(w), how
			rev := revision(t, weighed, nil)
			if tb := busyTable(40, rev.Columns()); !same(picked(t, plain, tb), picked(t, rev, tb)) {
				t.Errorf("weight %v, %s: picks differ from least-load's", w, how)
			}
		}
	}
}

func TestWeightsThatAreNoNumbersAreRefused(t *testing.T) {
	for _, w := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1.1e6, -1.1e6} {
		spec := use("builtin:least-load")
		spec.Scorers[0].Weight = ptr(w)
		if _, err := spec.Normalised(); err == nil || !strings.Contains(err.Error(), "scorers[0].weight") {
			t.Errorf("weight %v: got %v", w, err)
		}
	}
}

func TestNormalisedScoresAreFromZeroToOne(t *testing.T) {
	for _, how := range []string{"minmax", "rank"} {
		for _, s := range [][]float64{{1}, {5, 5}, {-1e308, 1e308, 0}, {math.Inf(-1), 1, 2, 3}, {-3, math.NaN(), 1e-300, 0}} {
			spec := use("module:s")
			spec.Scorers[0].Normalise = how
			d := decided(t, revision(t, spec, modules{"module:s": scores(s...)}), len(s))
			for row, v := range d.Totals {
				if !(v >= 0 && v <= 1) {
					t.Errorf("%s of %v: row %d has %v", how, s, row, v)
				}
			}
		}
	}
}

func TestQ6_LoadAndCacheDecideTogether(t *testing.T) {
	// w1 has load 100; w2 and w3 have 1; the prompt's blocks are cached on w2.
	for name, spec := range map[string]policy.Spec{
		"kv-aware": use("builtin:kv-aware"),
		"composed": func() policy.Spec {
			s := use("builtin:kv-aware", "builtin:least-load")
			s.Scorers[0].Normalise, s.Scorers[1].Normalise = "rank", "rank"
			return s
		}(),
	} {
		rev := revision(t, spec, nil)
		tb := table(3, rev.Columns())
		tb.SetField(abi.FieldBlockSize, 16)
		tb.SetField(abi.FieldISLTokens, 160)
		tb.SetField(abi.FieldISLBlocks, 10)
		copy(tb.Fill(abi.ColLoadActiveRequests), []float64{100, 1, 1})
		copy(tb.Fill(abi.ColLoadPrefillTokens), []float64{16000, 160, 160})
		copy(tb.Fill(abi.ColLoadPotentialPrefillTokens), []float64{16160, 320, 320})
		copy(tb.Fill(abi.ColLoadPotentialDecodeBlocks), []float64{1010, 20, 20})
		copy(tb.Fill(abi.ColKVOverlapDevice), []float64{0, 10, 0})
		for _, row := range picked(t, rev, tb) {
			if row != 1 {
				t.Fatalf("%s: row %d was picked; want 1, the worker with the cache", name, row)
			}
		}
	}
}
