package policy_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// whole answers with scores, a mask as a text and a choice.
func whole(scores []float64, verdict string, c policy.Choice) *deciding {
	return &deciding{answer: func(_ *policy.Table, out []float64, keep []byte) (policy.Choice, policy.Verdict, error) {
		copy(out, scores)
		for row := range keep {
			keep[row] = verdict[row] - '0'
		}
		return c, policy.Answered, nil
	}}
}

func TestWholePolicy(t *testing.T) {
	nan := math.NaN()
	abstains, traps := whole(nil, "1111", policy.Choice{}), whole(nil, "1111", policy.Choice{})
	abstains.answer = func(*policy.Table, []float64, []byte) (policy.Choice, policy.Verdict, error) {
		return policy.Choice{}, policy.Abstained, nil
	}
	traps.answer = func(*policy.Table, []float64, []byte) (policy.Choice, policy.Verdict, error) {
		return policy.Choice{}, 0, trap
	}
	for name, c := range map[string]struct {
		policy  *deciding
		onError string
		row     int
		by      policy.By // empty for an error
		code    string
		totals  []float64
		mask    string
	}{
		"its pick":         {whole([]float64{1, 2, 3, 4}, "1111", policy.Choice{Row: 1}), "", 1, policy.ByPolicy, "", []float64{1, 2, 3, 4}, "all"},
		"its mask":         {whole([]float64{1, 2, 3, nan}, "1110", policy.Choice{Row: 0}), "", 0, policy.ByPolicy, "", []float64{1, 2, 3, 0}, "1110"},
		"the host draws":   {whole([]float64{1, 2, 3, 4}, "1110", policy.Choice{HostDraws: true}), "", 2, policy.ByPolicy, "", []float64{1, 2, 3, 0}, "1110"},
		"cleaned":          {whole([]float64{1, nan, 3, nan}, "1110", policy.Choice{HostDraws: true}), "", 2, policy.ByPolicy, "", []float64{1, 2, 3, 0}, "1110"},
		"abstains":         {abstains, "", 0, policy.ByFallback, "", []float64{0, -1, -2, -3}, "all"},
		"abstains, fail":   {abstains, "fail", 0, policy.ByFallback, "", []float64{0, -1, -2, -3}, "all"},
		"traps":            {traps, "", 0, policy.ByFallback, "E_TRAP", []float64{0, -1, -2, -3}, "all"},
		"traps, fail":      {traps, "fail", 0, "", "E_TRAP", nil, ""},
		"picks a masked":   {whole([]float64{1, 2, 3, 4}, "1110", policy.Choice{Row: 3}), "", 0, policy.ByFallback, "E_PICK", nil, "all"},
		"picks none":       {whole([]float64{1, 2, 3, 4}, "1111", policy.Choice{Row: -1}), "", 0, policy.ByFallback, "E_PICK", nil, "all"},
		"keeps none":       {whole([]float64{1, 2, 3, 4}, "0000", policy.Choice{HostDraws: true}), "", 0, policy.ByFallback, "E_PICK", nil, "all"},
		"byte 7":           {whole([]float64{1, 2, 3, 4}, "1171", policy.Choice{}), "", 0, policy.ByFallback, "E_MASK", nil, "all"},
		"mostly no number": {whole([]float64{nan, nan, 3, 4}, "1110", policy.Choice{}), "", 0, policy.ByFallback, "E_NAN", nil, "all"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := policy.Spec{Policy: &policy.WholeSpec{StageSpec: policy.StageSpec{Use: "module:w"}, OnError: c.onError}, Fallback: "builtin:round-robin"}
			rev := revision(t, spec, modules{"module:w": c.policy})
			var d policy.Decision
			err := rev.Decide(t.Context(), table(4, rev.Columns()), &d)
			if (err != nil) != (c.by == "") {
				t.Fatalf("got %v", err)
			}
			if (d.Fault == nil) != (c.code == "") || d.Fault != nil && d.Fault.Code != c.code {
				t.Errorf("got fault %v; want %s", d.Fault, c.code)
			}
			if err != nil {
				return
			}
			if d.Row != c.row || d.By != c.by || mask(&d) != c.mask {
				t.Errorf("got row %d by %s, mask %s; want %d by %s, %s", d.Row, d.By, mask(&d), c.row, c.by, c.mask)
			}
			if diff := cmp.Diff(c.totals, d.Totals); c.totals != nil && diff != "" {
				t.Errorf("totals (-want +got):\n%s", diff)
			}
			if d.Mask != nil && d.MaskedBy[3] != -1 {
				t.Errorf("row 3 was masked by %d; want -1, the policy", d.MaskedBy[3])
			}
		})
	}
}

func TestWholePolicyIsNamedAndClosed(t *testing.T) {
	w := whole([]float64{1, 2}, "11", policy.Choice{})
	rev := revision(t, policy.Spec{Policy: &policy.WholeSpec{StageSpec: policy.StageSpec{Use: "module:w"}}}, modules{"module:w": w})
	if diff := cmp.Diff([]policy.StageName{{Kind: abi.KindPolicy, Use: "module:w"}}, rev.Stages()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d := decided(t, rev, 2); len(d.StageScores) != 1 || d.StageScores[0][1] != 2 {
		t.Errorf("got stage scores %v", d.StageScores)
	}
	rev.Retire()
	if w.closed != 1 {
		t.Errorf("closed %d times", w.closed)
	}
}

func TestReplayOfAWholePolicyThatAbstains(t *testing.T) {
	w := whole(nil, "11", policy.Choice{})
	w.answer = func(*policy.Table, []float64, []byte) (policy.Choice, policy.Verdict, error) {
		return policy.Choice{}, policy.Abstained, nil
	}
	rev := revision(t, policy.Spec{Policy: &policy.WholeSpec{StageSpec: policy.StageSpec{Use: "module:w"}}}, modules{"module:w": w})
	var d policy.Decision
	if err := rev.Replay(t.Context(), table(2, rev.Columns()), &d); err != nil || d.By != policy.ByFallback {
		t.Errorf("got by %s, %v; want the fallback and no error", d.By, err)
	}
}

func TestStageOfAnotherKindIsRefusedAndClosed(t *testing.T) {
	f := keeps("11")
	for name, spec := range map[string]policy.Spec{
		"scorer": use("module:f"),
		"picker": filtered(nil, []string{"builtin:least-load"}, func(s *policy.Spec) { s.Picker = picker("module:f") }),
		"policy": {Policy: &policy.WholeSpec{StageSpec: policy.StageSpec{Use: "module:f"}}},
		"lora":   filtered(nil, []string{"builtin:least-load"}, func(s *policy.Spec) { s.Lora = use("module:f").Scorers }),
	} {
		f.closed = 0
		if _, _, err := policy.Compile(t.Context(), spec, modules{"module:f": f}); err == nil || f.closed != 1 {
			t.Errorf("%s: got %v, closed %d times; want a refusal, once", name, err, f.closed)
		}
	}
	if _, _, err := policy.Compile(t.Context(), filtered([]string{"module:s"}, []string{"builtin:least-load"}, nil), modules{"module:s": scores(1)}); err == nil || errors.Is(err, policy.ErrEmptied) {
		t.Errorf("a scorer as a filter: %v", err)
	}
}
