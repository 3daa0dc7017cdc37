package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

func TestCGuestsHaveTheBitsOfTheirNativeTwin(t *testing.T) {
	src := newGuests(t)
	forms := []string{"scalar", "simd"}
	for _, name := range forms {
		src.with(name, packC(t, name))
	}
	for _, config := range []string{``, `{"credit_decay":0.7,"active_request_weight":0.3}`, `{"overlap_credit":0,"prefill_load_scale":3.5,"credit_decay":2}`} {
		for _, filtered := range []bool{false, true} {
			native := withFilter(t, src, "builtin:kv-aware", config, filtered)
			for _, name := range forms {
				guest := withFilter(t, src, "module:"+name, config, filtered)
				t.Run(fmt.Sprintf("%s %s filtered=%t", name, config, filtered), func(t *testing.T) { sameBits(t, native, guest) })
			}
		}
	}
}

// sameBits compares two revisions over tables of many sizes, whose values are
// ordinary or now and then hostile.
func sameBits(t *testing.T, native, guest *policy.Revision) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, hostile := range []bool{false, true} {
		for _, rows := range []int{1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 257, 1000, 4096} {
			tab := &policy.Table{}
			fill(tab, kvColumns(t), rows)
			scatter(tab, rng, hostile)
			var want, got policy.Decision
			decideWhenGrown(t, native, tab, &want)
			decideWhenGrown(t, guest, tab, &got)
			if got.Row != want.Row {
				t.Errorf("%d rows, hostile %t: picks %d, want %d", rows, hostile, got.Row, want.Row)
			}
			if d := cmp.Diff(bits(want.StageScores[0]), bits(got.StageScores[0])); d != "" {
				t.Fatalf("%d rows, hostile %t: scores (-native +guest):\n%.2000s", rows, hostile, d)
			}
		}
	}
}

// scatter overwrites the values with others that are not whole, the prompt long
// enough that credit does not cover it. Hostile ones are few, since a policy with
// no opinion on most rows is not believed.
func scatter(t *policy.Table, rng *rand.Rand, hostile bool) {
	odd := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1e308, 0x1p964, -0x1p963, math.MaxFloat64, 5e-324, -3}
	set := t.Set()
	for _, name := range set.Names() {
		col := t.NamedCells(name).Fill()
		for row := range col {
			col[row] = float64(rng.IntN(1<<20)) / 7
			if name == abi.ColLoadPotentialPrefillTokens.String() {
				col[row] *= 100
			}
			// Row 0 stays ordinary, so that there is one score to believe.
			if hostile && row > 0 && rng.IntN(200) == 0 {
				col[row] = odd[rng.IntN(len(odd))]
			}
		}
	}
}

func bits(values []float64) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprintf("%016x", math.Float64bits(v))
	}
	return out
}

// withFilter makes a revision of a scorer with a configuration, and of a filter
// that drops rows before it.
func withFilter(t *testing.T, src *guests, use, config string, filtered bool) *policy.Revision {
	t.Helper()
	spec := policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: use, Config: json.RawMessage(config)}}}}
	if filtered {
		spec.Filters = []policy.FilterSpec{{StageSpec: policy.StageSpec{Use: "module:most"}}}
	}
	return revisionOf(t, spec, filters{src})
}

// filters has the filter module:most beside its guests.
type filters struct{ *guests }

// Stage makes a stage.
func (f filters) Stage(ctx context.Context, kind abi.Kind, use string, config json.RawMessage) (policy.Stage, string, error) {
	if kind == abi.KindFilter {
		return most{}, "", nil
	}
	return f.guests.Stage(ctx, kind, use, config)
}

// most drops every row with a number that leaves 1 or 2 when divided by 5; so
// never the first.
type most struct{}

var _ policy.Filter = most{}

func (most) Filter(_ context.Context, _ *policy.Table, keep []byte, _ *policy.StageReport) (policy.Verdict, error) {
	for row := range keep {
		if row%5 == 1 || row%5 == 2 {
			keep[row] = 0
		}
	}
	return policy.Answered, nil
}

func (most) Columns() policy.ColumnSet                                   { return policy.ColumnSet{} }
func (most) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }
func (most) Close() error                                                { return nil }
