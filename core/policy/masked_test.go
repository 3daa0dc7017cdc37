package policy_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// TestMaskedScores: scores of rows that a filter dropped are not cleaned, not
// counted, and of no effect on medians, ranges and ranks.
func TestMaskedScores(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, c := range map[string]struct {
		keep      string
		scores    []float64
		normalise string
		totals    []float64
		cleaned   int
		fault     bool
	}{
		"not cleaned":              {"1101", []float64{1, 2, nan, 3}, "none", []float64{1, 2, 0, 3}, 0, false},
		"median of kept rows":      {"11011", []float64{1, nan, 100, 3, 5}, "none", []float64{1, 3, 0, 3, 5}, 1, false},
		"two of three kept rows":   {"10011", []float64{nan, 1, 1, 2, nan}, "none", nil, 0, true},
		"even median":              {"111101", []float64{nan, 1, 2, nan, 9, 7}, "none", []float64{2, 1, 2, 2, 0, 7}, 2, false},
		"more than half of kept":   {"110111", []float64{nan, inf, 3, nan, 1, 2}, "none", nil, 0, true},
		"minmax over kept":         {"0111", []float64{1e9, 10, 20, 30}, "minmax", []float64{0, 0, 0.5, 1}, 0, false},
		"minmax, one kept":         {"0010", []float64{1, 2, 3, 4}, "minmax", []float64{0, 0, 0.5, 0}, 0, false},
		"rank over kept":           {"11101", []float64{5, 5, 9, -9, 7}, "rank", []float64{0.5 / 3, 0.5 / 3, 1, 0, 2.0 / 3}, 0, false},
		"rank, one kept":           {"0100", []float64{1, 2, 3, 4}, "rank", []float64{0, 0.5, 0, 0}, 0, false},
		"infinite where masked":    {"01", []float64{inf, -4}, "none", []float64{0, -4}, 0, false},
		"negative zero where kept": {"011", []float64{nan, math.Copysign(0, -1), 0}, "rank", []float64{0, 0.5, 0.5}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			spec := filtered([]string{"module:f"}, []string{"module:s"}, func(s *policy.Spec) { s.Scorers[0].Normalise = c.normalise })
			rev := revision(t, spec, modules{"module:f": keeps(c.keep), "module:s": scores(c.scores...)})
			d := decided(t, rev, len(c.scores))
			if (d.Fault != nil) != c.fault || d.Cleaned != c.cleaned {
				t.Fatalf("got fault %v, cleaned %d; want a fault: %v, %d", d.Fault, d.Cleaned, c.fault, c.cleaned)
			}
			if c.fault {
				return
			}
			if diff := cmp.Diff(c.totals, d.Totals); diff != "" {
				t.Errorf("totals (-want +got):\n%s", diff)
			}
			for row, v := range d.StageScores[0] {
				if v-v != 0 || c.keep[row] == '0' && v != 0 {
					t.Errorf("stage score of row %d is %v", row, v)
				}
			}
		})
	}
}

func TestTiesAreAmongKeptRows(t *testing.T) {
	rev := revision(t, filtered([]string{"module:f"}, []string{"module:s"}, nil), modules{"module:f": keeps("011011"), "module:s": scores(3, 3, 1, 3, 3, 3)})
	tb := table(6, rev.Columns())
	var d policy.Decision
	kept := []int{1, 4, 5}
	for seed := range uint64(300) {
		tb.Seed = seed
		if err := rev.Decide(t.Context(), tb, &d); err != nil {
			t.Fatal(err)
		}
		if want := kept[int(policy.TieDraw(seed)*3)]; d.Row != want || d.Tie.Rows != 3 || d.Tie.Draw != policy.TieDraw(seed) {
			t.Fatalf("seed %d: got row %d, tie %+v; want %d of 3", seed, d.Row, d.Tie, want)
		}
	}
}

func TestBuiltinScorersLookAtKeptRows(t *testing.T) {
	t.Run("kv-aware", func(t *testing.T) {
		// Without the idle first rank the second is the least loaded, so that its
		// credit does not decay.
		spec := withConfig("builtin:kv-aware", `{"credit_decay":1}`)
		alone := revision(t, spec, nil)
		tb := kvTable(alone.Columns())
		var d policy.Decision
		if err := alone.Decide(t.Context(), tb, &d); err != nil || d.StageScores[0][1] != -29.75 {
			t.Fatalf("got %v, %v", d.StageScores, err)
		}
		spec.Filters = filtered([]string{"module:f"}, nil, nil).Filters
		rev := revision(t, spec, modules{"module:f": keeps("01")})
		if err := rev.Decide(t.Context(), kvTable(rev.Columns()), &d); err != nil || d.StageScores[0][1] != -27.75 {
			t.Errorf("got %v, %v; want -27.75 for the only kept rank", d.StageScores, err)
		}
	})
	t.Run("round-robin", func(t *testing.T) {
		rev := revision(t, filtered([]string{"module:f"}, []string{"builtin:round-robin"}, nil), modules{"module:f": keeps("10110")})
		got := turns(t, rev, 5)
		if diff := cmp.Diff([]int{0, 2, 3, 0, 2, 3}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestLoraScorersRunForRequestsWithAnAdapter(t *testing.T) {
	abstains := &scripted{answer: func(*policy.Table, []float64) (policy.Verdict, error) { return policy.Abstained, nil }}
	spec := func(stage, onError string) policy.Spec {
		s := use("module:s")
		s.Lora = []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: stage}, Weight: ptr(10), OnError: onError}}
		return s
	}
	for name, c := range map[string]struct {
		stage   string
		onError string
		adapter float64
		totals  []float64
		by      policy.By
	}{
		"no adapter":            {"module:l", "", 0, []float64{4, 3, 2, 1}, policy.ByPolicy},
		"an adapter":            {"module:l", "", 1, []float64{4, 13, 22, 31}, policy.ByPolicy},
		"the built-in order":    {"builtin:lora-affinity", "", 1, []float64{4, 13, 22, 31}, policy.ByPolicy},
		"abstains":              {"module:a", "", 1, []float64{4, 13, 22, 31}, policy.ByPolicy},
		"abstains, not called":  {"module:a", "", 0, []float64{4, 3, 2, 1}, policy.ByPolicy},
		"faults":                {"module:x", "", 1, nil, policy.ByFallback},
		"faults, skipped":       {"module:x", "skip", 1, []float64{4, 3, 2, 1}, policy.ByPolicy},
		"a scorer is one too":   {"builtin:least-load", "", 1, []float64{4, 3, 2, 1}, policy.ByPolicy},
		"faults, but no lora":   {"module:x", "fail", 0, []float64{4, 3, 2, 1}, policy.ByPolicy},
		"abstains, skip is not": {"module:a", "skip", 1, []float64{4, 13, 22, 31}, policy.ByPolicy},
	} {
		t.Run(name, func(t *testing.T) {
			rev := revision(t, spec(c.stage, c.onError), modules{"module:s": scores(4, 3, 2, 1), "module:l": scores(0, 1, 2, 3), "module:a": abstains, "module:x": faulty(*trap)})
			tb := table(4, rev.Columns())
			tb.SetField(abi.FieldHasLora, c.adapter)
			copy(tb.Fill(abi.ColLoraLoaded), []float64{0, 1, 0, 1})
			copy(tb.Fill(abi.ColLoraInReplicaSet), []float64{0, 0, 1, 1})
			var d policy.Decision
			if err := rev.Decide(t.Context(), tb, &d); err != nil {
				t.Fatal(err)
			}
			if d.By != c.by {
				t.Errorf("got by %s, want %s", d.By, c.by)
			}
			if diff := cmp.Diff(c.totals, d.Totals); c.totals != nil && diff != "" {
				t.Errorf("totals (-want +got):\n%s", diff)
			}
			if ran := d.StageScores[1] != nil; c.by == policy.ByPolicy && ran != (c.adapter == 1 && c.onError != "skip" || name == "abstains, skip is not") {
				t.Errorf("lora scores are there: %v", ran)
			}
		})
	}
}
