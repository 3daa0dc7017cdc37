package policy_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// modelCase is a pipeline with what its stages answer, made from a seed.
type modelCase struct {
	n       int
	seed    uint64
	lora    bool
	filters []modelFilter
	scorers []modelScorer // lora scorers last
}

type modelFilter struct {
	keep    []byte
	onEmpty string
	abstain bool
}

type modelScorer struct {
	scores    []float64
	weight    float64
	normalise string
	onError   string
	abstain   bool
	lora      bool
}

func newModelCase(r *rand.Rand) modelCase {
	c := modelCase{n: 1 + r.IntN(12), seed: r.Uint64(), lora: r.IntN(2) == 0}
	for range r.IntN(4) {
		f := modelFilter{keep: make([]byte, c.n), onEmpty: "ignore", abstain: r.IntN(6) == 0}
		if r.IntN(8) == 0 {
			f.onEmpty = "fail"
		}
		share := r.IntN(5)
		for row := range f.keep {
			if r.IntN(4) < share {
				f.keep[row] = 1
			}
		}
		c.filters = append(c.filters, f)
	}
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1, 1, 2, math.MaxFloat64, -math.MaxFloat64, 1e300, 5e-324}
	for i := range 1 + r.IntN(4) {
		s := modelScorer{scores: make([]float64, c.n), weight: []float64{1, -1, 0, 0.3, 1e6, 1e-6}[r.IntN(6)], abstain: r.IntN(6) == 0, lora: i > 0 && r.IntN(4) == 0}
		s.normalise = []string{"none", "minmax", "rank"}[r.IntN(3)]
		s.onError = []string{"fallback", "skip", "fail"}[r.IntN(3)]
		for row := range s.scores {
			if s.scores[row] = float64(r.IntN(5)) - 2; r.IntN(5) == 0 {
				s.scores[row] = odd[r.IntN(len(odd))]
			}
		}
		c.scorers = append(c.scorers, s)
	}
	slices.SortStableFunc(c.scorers, func(a, b modelScorer) int {
		return cmp.Compare(map[bool]int{true: 1}[a.lora], map[bool]int{true: 1}[b.lora])
	})
	return c
}

// revision makes the case's pipeline.
func (c *modelCase) revision(t *testing.T) *policy.Revision {
	src := modules{}
	spec := policy.Spec{Fallback: "builtin:round-robin"}
	for i, f := range c.filters {
		name := fmt.Sprintf("module:f%d", i)
		src[name] = &filtering{answer: func(_ *policy.Table, keep []byte) (policy.Verdict, error) {
			copy(keep, f.keep)
			if f.abstain {
				return policy.Abstained, nil
			}
			return policy.Answered, nil
		}}
		spec.Filters = append(spec.Filters, policy.FilterSpec{StageSpec: policy.StageSpec{Use: name}, OnEmpty: f.onEmpty})
	}
	for i, s := range c.scorers {
		name := fmt.Sprintf("module:s%d", i)
		src[name] = &scripted{answer: func(_ *policy.Table, out []float64) (policy.Verdict, error) {
			copy(out, s.scores)
			if s.abstain {
				return policy.Abstained, nil
			}
			return policy.Answered, nil
		}}
		sc := policy.ScorerSpec{StageSpec: policy.StageSpec{Use: name}, Weight: ptr(s.weight), Normalise: s.normalise, OnError: s.onError}
		if s.lora {
			spec.Lora = append(spec.Lora, sc)
		} else {
			spec.Scorers = append(spec.Scorers, sc)
		}
	}
	return revision(t, spec, src)
}

// outcome is what the model says of a case.
type outcome struct {
	err    string // "", emptied or fault
	by     policy.By
	row    int
	kept   []int
	totals map[int]float64
}

// model is the pipeline told naively: over the list of kept rows, with maps.
func (c *modelCase) model() (o outcome) {
	for row := range c.n {
		o.kept = append(o.kept, row)
	}
	for _, f := range c.filters {
		if f.abstain {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(o.kept), func(row int) bool { return f.keep[row] == 0 })
		switch {
		case len(left) > 0:
			o.kept = left
		case f.onEmpty == "fail":
			o.err = "emptied"
			return o
		}
	}
	o.totals = map[int]float64{}
	for _, s := range c.scorers {
		if s.lora && !c.lora || s.abstain && !s.lora {
			continue
		}
		given := map[int]float64{}
		for _, row := range o.kept {
			if given[row] = s.scores[row]; s.abstain { // the built-in order: nothing is loaded
				given[row] = 0
			}
		}
		if !modelClean(given) {
			switch s.onError {
			case "skip":
				continue
			case "fail":
				o.err = "fault"
				return o
			}
			o.by, o.row = policy.ByFallback, o.kept[0]
			return o
		}
		for row, v := range modelNormalise(s.normalise, given) {
			o.totals[row] = modelClamp(o.totals[row] + float64(s.weight*v))
		}
	}
	o.by = policy.ByPolicy
	high := math.Inf(-1)
	for _, row := range o.kept {
		high = max(high, o.totals[row])
	}
	equal := slices.DeleteFunc(slices.Clone(o.kept), func(row int) bool { return o.totals[row] != high })
	o.row = equal[int(policy.TieDraw(c.seed)*float64(len(equal)))]
	return o
}

func modelClamp(v float64) float64 { return max(-1e300, min(1e300, v)) }

func modelClean(given map[int]float64) bool {
	var finite []float64
	for _, v := range given {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			finite = append(finite, v)
		}
	}
	if 2*(len(given)-len(finite)) > len(given) {
		return false
	}
	slices.Sort(finite)
	m := len(finite) / 2
	median := finite[m]
	if len(finite)%2 == 0 {
		median = finite[m-1]/2 + finite[m]/2
		if whole := (finite[m-1] + finite[m]) * 0.5; !math.IsInf(whole, 0) {
			median = whole
		}
	}
	for row, v := range given {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			given[row] = median
		}
	}
	return true
}

func modelNormalise(how string, given map[int]float64) map[int]float64 {
	out := map[int]float64{}
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range given {
		low, high = min(low, modelClamp(v)), max(high, modelClamp(v))
	}
	for row, v := range given {
		below, equal := 0, 0
		for _, w := range given {
			if w < v {
				below++
			}
			if w == v {
				equal++
			}
		}
		switch {
		case how == "none":
			out[row] = modelClamp(v)
		case how == "minmax" && high == low || how == "rank" && len(given) == 1:
			out[row] = 0.5
		case how == "minmax":
			out[row] = (modelClamp(v) - low) / (high - low)
		default:
			out[row] = (float64(below) + float64(equal-1)*0.5) / float64(len(given)-1)
		}
	}
	return out
}

func checkModel(t *testing.T, seed uint64, d *policy.Decision) {
	t.Helper()
	c := newModelCase(rand.New(rand.NewPCG(seed, 1)))
	want := c.model()
	rev := c.revision(t)
	tb := table(c.n, rev.Columns())
	tb.Seed = c.seed
	if c.lora {
		tb.SetField(abi.FieldHasLora, 1)
	}
	err := rev.Decide(t.Context(), tb, d)
	if (err != nil) != (want.err != "") {
		t.Fatalf("seed %d: got error %v, want %q\n%+v", seed, err, want.err, c)
	}
	if err != nil {
		return
	}
	if d.Row != want.row || d.By != want.by {
		t.Fatalf("seed %d: got row %d by %s, want %d by %s\n%+v", seed, d.Row, d.By, want.row, want.by, c)
	}
	for row, v := range d.Totals {
		if math.IsNaN(v) || math.Abs(v) > policy.MaxScore {
			t.Fatalf("seed %d: the total of row %d is %v", seed, row, v)
		}
		if kept := slices.Contains(want.kept, row); d.By == policy.ByPolicy && v != want.totals[row] || (len(d.Mask) == 0 || d.Mask[row] == 1) != kept {
			t.Fatalf("seed %d, row %d: got total %v, mask %v; want %v, kept %v\n%+v", seed, row, v, d.Mask, want.totals[row], kept, c)
		}
	}
	for _, stage := range d.StageScores {
		for row, v := range stage {
			if v-v != 0 {
				t.Fatalf("seed %d: a stage score of row %d is %v", seed, row, v)
			}
		}
	}
}

func TestPipelineDoesWhatTheModelSays(t *testing.T) {
	var d policy.Decision // one for all: nothing of a decision reaches the next
	for seed := range uint64(5_000) {
		checkModel(t, seed, &d)
	}
}

func FuzzPipeline(f *testing.F) {
	f.Add(uint64(1))
	f.Add(uint64(1) << 40)
	f.Fuzz(func(t *testing.T, seed uint64) {
		var d policy.Decision
		checkModel(t, seed, &d)
	})
}
