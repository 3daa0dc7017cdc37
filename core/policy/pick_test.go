package policy_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
	"github.com/routerd/routerd/plugins/abi/rpmath"
)

// drawn counts how often each row is picked over many seeds.
func drawn(t *testing.T, rev *policy.Revision, n, draws int, overrides string) []int {
	t.Helper()
	tb := table(n, rev.Columns())
	if overrides != "" {
		if err := json.Unmarshal([]byte(overrides), &tb.Overrides); err != nil {
			t.Fatal(err)
		}
		if err := rev.CheckOverrides(tb.Overrides); err != nil {
			t.Fatal(err)
		}
	}
	counts := make([]int, n)
	var d policy.Decision
	for seed := range uint64(draws) {
		tb.Seed = policy.SplitMix64(seed)
		if err := rev.Decide(t.Context(), tb, &d); err != nil {
			t.Fatal(err)
		}
		if d.By != policy.ByPolicy {
			t.Fatalf("by %s: %v", d.By, d.Fault)
		}
		counts[d.Row]++
	}
	return counts
}

func picking2(use, config string, scorer policy.Stage, t *testing.T) *policy.Revision {
	t.Helper()
	spec := filtered(nil, []string{"module:s"}, func(s *policy.Spec) {
		s.Picker = picker(use)
		s.Picker.Config = json.RawMessage(config)
	})
	return revision(t, spec, modules{"module:s": scorer})
}

func TestQ5_Softmax(t *testing.T) {
	const draws = 30_000
	costs := func(c ...float64) *scripted {
		for i := range c {
			c[i] = -c[i]
		}
		return scores(c...)
	}
	e := func(x float64) float64 { return rpmath.Exp(x) }
	third := []float64{1.0 / 3, 1.0 / 3, 1.0 / 3}
	for name, c := range map[string]struct {
		config, overrides string
		scorer            *scripted
		want              []float64 // shares
	}{
		"0":                         {`{"temperature":0}`, "", costs(1, 2, 3), []float64{1, 0, 0}},
		"unless given 0":            {`{}`, "", costs(1, 2, 3), []float64{1, 0, 0}},
		"1e-9":                      {`{"temperature":1e-9}`, "", costs(1, 2, 3), []float64{1, 0, 0}},
		"the smallest":              {`{"temperature":5e-324}`, "", costs(1, 2, 3), []float64{1, 0, 0}},
		"1e9":                       {`{"temperature":1e9}`, "", costs(1, 2, 3), third},
		"the largest":               {`{"temperature":1.7e308}`, "", costs(1, 2, 3), third},
		"1":                         {`{"temperature":1}`, "", costs(1, 2, 3), []float64{1 / (1 + e(-0.5) + e(-1)), e(-0.5) / (1 + e(-0.5) + e(-1)), e(-1) / (1 + e(-0.5) + e(-1))}},
		"scale is of no effect":     {`{"temperature":1}`, "", costs(1000, 2000, 3000), []float64{1 / (1 + e(-0.5) + e(-1)), e(-0.5) / (1 + e(-0.5) + e(-1)), e(-1) / (1 + e(-0.5) + e(-1))}},
		"equal costs":               {`{"temperature":1}`, "", costs(7, 7, 7), third},
		"equal costs, 1e-9":         {`{"temperature":1e-9}`, "", costs(7, 7, 7), third},
		"huge costs":                {`{"temperature":1}`, "", costs(1e308, -1e308, 0), []float64{e(-1) / (1 + e(-0.5) + e(-1)), 1 / (1 + e(-0.5) + e(-1)), e(-0.5) / (1 + e(-0.5) + e(-1))}},
		"an override of 1e9":        {`{"temperature":0}`, `{"temperature":1e9}`, costs(1, 2, 3), third},
		"an override of 0":          {`{"temperature":1e9}`, `{"temperature":0}`, costs(1, 2, 3), []float64{1, 0, 0}},
		"equal and temperature 0":   {`{"temperature":0}`, "", costs(7, 7, 9), []float64{0.5, 0.5, 0}},
		"an infinite cost":          {`{"temperature":1e9}`, "", costs(1, math.Inf(1), 3), third}, // no opinion: the median
		"one of two is as good: -0": {`{"temperature":1e-9}`, "", scores(math.Copysign(0, -1), 0, -5), []float64{0.5, 0.5, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := drawn(t, picking2(policy.SoftmaxPicker, c.config, c.scorer, t), 3, draws, c.overrides)
			for row, want := range c.want {
				share := float64(got[row]) / draws
				if want == 0 && share != 0 || want == 1 && share != 1 || math.Abs(share-want) > 0.03 {
					t.Errorf("row %d was picked in %.3f of the draws; want %.3f", row, share, want)
				}
			}
		})
	}
}

func TestQ5_TemperaturesThatAreRefused(t *testing.T) {
	rev := picking2(policy.SoftmaxPicker, `{"temperature":0.5}`, scores(1), t)
	for _, v := range []string{`-1`, `NaN`, `"NaN"`, `"1"`, `null`, `1e999`, `-0.1`, `[1]`, ``, `true`} {
		err := rev.CheckOverrides(map[string]json.RawMessage{"temperature": json.RawMessage(v)})
		if f, ok := errors.AsType[*fleet.FieldError](err); !ok || f.Field != "temperature" {
			t.Errorf("override %s: got %v; want a refusal of temperature", v, err)
		}
		_, err = policy.Spec{
			Scorers: use("builtin:least-load").Scorers,
			Picker:  &policy.PickerSpec{StageSpec: policy.StageSpec{Use: policy.SoftmaxPicker, Config: json.RawMessage(`{"temperature":` + v + `}`)}},
		}.Normalised()
		if err == nil {
			t.Errorf("a configuration of %s is taken", v)
		}
	}
	if err := picking2(policy.TwoChoicesPicker, "", scores(1), t).CheckOverrides(map[string]json.RawMessage{"temperature": json.RawMessage(`1`)}); err == nil {
		t.Error("an override that reaches no stage is taken")
	}
}

// The default policy names no picker: a request may ask it for a draw.
func TestQ5_ATemperatureReachesTheDefaultPolicy(t *testing.T) {
	rev := revision(t, use("builtin:kv-aware"), nil)
	for _, v := range []string{`-1`, `NaN`, `"1"`, `null`, `1e999`} {
		err := rev.CheckOverrides(map[string]json.RawMessage{"temperature": json.RawMessage(v)})
		if f, ok := errors.AsType[*fleet.FieldError](err); !ok || f.Field != "temperature" {
			t.Errorf("override %s: got %v; want a refusal of temperature", v, err)
		}
	}
	const draws = 3000
	third := []float64{1.0 / 3, 1.0 / 3, 1.0 / 3}
	costs := scores(-1, -2, -3)
	for overrides, want := range map[string][]float64{
		"": {1, 0, 0}, `{"temperature":0}`: {1, 0, 0}, `{"temperature":1e-9}`: {1, 0, 0}, `{"temperature":1e9}`: third,
	} {
		got := drawn(t, picking2(policy.BestPicker, "", costs, t), 3, draws, overrides)
		for row, share := range want {
			if math.Abs(float64(got[row])/draws-share) > 0.03 || share == 1 && got[row] != draws {
				t.Errorf("%s: row %d was picked %d times of %d; want %.3f of them", overrides, row, got[row], draws, share)
			}
		}
	}
}

func TestSoftmaxTakesKeptRowsInOrder(t *testing.T) {
	spec := filtered([]string{"module:f"}, []string{"module:s"}, func(s *policy.Spec) {
		s.Picker = picker(policy.SoftmaxPicker)
		s.Picker.Config = json.RawMessage(`{"temperature":1e9}`)
	})
	rev := revision(t, spec, modules{"module:f": keeps("01011"), "module:s": scores(9, 1, 9, 1, 1)})
	tb := table(5, rev.Columns())
	var d policy.Decision
	for seed := range uint64(300) {
		tb.Seed = seed
		if err := rev.Decide(t.Context(), tb, &d); err != nil {
			t.Fatal(err)
		}
		draw := float64(policy.SplitMix64(seed)>>11) / (1 << 53)
		if want := []int{1, 3, 4}[int(draw*3)]; d.Row != want || d.Tie != (policy.Tie{Rows: 3, Draw: draw}) {
			t.Fatalf("seed %d: got row %d, %+v; want %d", seed, d.Row, d.Tie, want)
		}
	}
}

func TestTwoChoices(t *testing.T) {
	t.Run("the better of two", func(t *testing.T) {
		got := drawn(t, picking2(policy.TwoChoicesPicker, "", scores(1, 2, 3, 4), t), 4, 60_000, "")
		// Of 6 pairs row 1 wins one, row 2 two, row 3 three.
		for row, want := range []float64{0, 1.0 / 6, 2.0 / 6, 3.0 / 6} {
			if share := float64(got[row]) / 60_000; math.Abs(share-want) > 0.01 || row == 0 && share > 0 {
				t.Errorf("row %d was picked in %.3f of the draws; want %.3f", row, share, want)
			}
		}
	})
	t.Run("equal rows", func(t *testing.T) {
		for row, n := range drawn(t, picking2(policy.TwoChoicesPicker, "", scores(1, 1, 1), t), 3, 30_000, "") {
			if math.Abs(float64(n)/30_000-1.0/3) > 0.01 {
				t.Errorf("row %d was picked %d times of 30000", row, n)
			}
		}
	})
	t.Run("one row", func(t *testing.T) {
		if got := drawn(t, picking2(policy.TwoChoicesPicker, "", scores(1), t), 1, 10, ""); got[0] != 10 {
			t.Errorf("got %v", got)
		}
	})
	t.Run("kept rows", func(t *testing.T) {
		spec := filtered([]string{"module:f"}, []string{"module:s"}, func(s *policy.Spec) { s.Picker = picker(policy.TwoChoicesPicker) })
		rev := revision(t, spec, modules{"module:f": keeps("10101"), "module:s": scores(1, 9, 2, 9, 3)})
		got := drawn(t, rev, 5, 30_000, "")
		if got[0]+got[1]+got[3] != 0 || math.Abs(float64(got[4])/30_000-2.0/3) > 0.01 {
			t.Errorf("got %v; want rows 2 and 4 in 1 to 2", got)
		}
	})
}

func TestPickersOfModules(t *testing.T) {
	abstains := picks(policy.Choice{})
	abstains.answer = func(*policy.Table, []float64) (policy.Choice, policy.Verdict, error) {
		return policy.Choice{}, policy.Abstained, nil
	}
	traps := picks(policy.Choice{})
	traps.answer = func(*policy.Table, []float64) (policy.Choice, policy.Verdict, error) { return policy.Choice{}, 0, trap }
	at := func(row int) *picking { return picks(policy.Choice{Row: row}) }
	for name, c := range map[string]struct {
		picker  *picking
		onError string
		row     int
		by      policy.By // empty for an error
		code    string
	}{
		"a kept row":          {at(1), "fallback", 1, policy.ByPolicy, ""},
		"the host draws":      {picks(policy.Choice{Row: 99, HostDraws: true}), "fallback", 3, policy.ByPolicy, ""},
		"abstains":            {abstains, "fallback", 3, policy.ByPolicy, ""},
		"W6: pick is n":       {at(4), "fallback", 0, policy.ByFallback, "E_PICK"},
		"below 0":             {at(-1), "fallback", 0, policy.ByFallback, "E_PICK"},
		"W6: a masked row":    {at(2), "fallback", 0, policy.ByFallback, "E_PICK"},
		"a masked row, skip":  {at(2), "skip", 3, policy.ByPolicy, "E_PICK"},
		"a masked row, fail":  {at(2), "fail", 0, "", "E_PICK"},
		"a trap, skip":        {traps, "skip", 3, policy.ByPolicy, "E_TRAP"},
		"a trap, fallback":    {traps, "fallback", 0, policy.ByFallback, "E_TRAP"},
		"a trap, fail":        {traps, "fail", 0, "", "E_TRAP"},
		"the fallback is all": {traps, "", 0, policy.ByFallback, "E_TRAP"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := filtered([]string{"module:f"}, []string{"module:s"}, func(s *policy.Spec) {
				s.Picker, s.Fallback = picker("module:p"), "builtin:round-robin"
				s.Picker.OnError = c.onError
			})
			rev := revision(t, spec, modules{"module:f": keeps("1101"), "module:s": scores(1, 2, 9, 3), "module:p": c.picker})
			var d policy.Decision
			err := rev.Decide(t.Context(), table(4, rev.Columns()), &d)
			if (err != nil) != (c.by == "") {
				t.Fatalf("got %v", err)
			}
			if err == nil && (d.Row != c.row || d.By != c.by || d.Tie.Rows != 1) {
				t.Errorf("got row %d by %s, tie %+v; want %d by %s", d.Row, d.By, d.Tie, c.row, c.by)
			}
			if (d.Fault == nil) != (c.code == "") || d.Fault != nil && d.Fault.Code != c.code {
				t.Errorf("got fault %v; want %s", d.Fault, c.code)
			}
		})
	}
}

func TestPickersSeeTheTotalsAsUpstreamScore(t *testing.T) {
	var seen [][]float64
	look := func(t *policy.Table) {
		c := t.Cells(abi.ColUpstreamScore)
		out := make([]float64, t.Len())
		c.Copy(out, -7)
		seen = append(seen, out)
	}
	p, s := picks(policy.Choice{Row: 1}), scores(1, 2, 9)
	inner := s.answer
	s.answer = func(t *policy.Table, out []float64) (policy.Verdict, error) { look(t); return inner(t, out) }
	p.columns.AddStd(abi.ColUpstreamScore)
	p.answer = func(t *policy.Table, totals []float64) (policy.Choice, policy.Verdict, error) {
		look(t)
		seen = append(seen, append([]float64{}, totals...))
		return policy.Choice{Row: 1}, policy.Answered, nil
	}
	spec := filtered([]string{"module:f"}, []string{"module:s", "module:s2"}, func(s *policy.Spec) { s.Picker = picker("module:p"); s.Scorers[1].Weight = ptr(10) })
	rev := revision(t, spec, modules{"module:f": keeps("110"), "module:s": s, "module:s2": scores(1, 2, 3), "module:p": p})
	tb := table(3, rev.Columns())
	var d policy.Decision
	for range 2 {
		if err := rev.Decide(t.Context(), tb, &d); err != nil {
			t.Fatal(err)
		}
	}
	once := [][]float64{{-7, -7, -7}, {11, 22, 0}, {11, 22, 0}}
	if diff := cmp.Diff(append(once, once...), seen); diff != "" {
		t.Errorf("what scorer and picker saw (-want +got):\n%s", diff)
	}
	var rec policy.Recording
	var again policy.Table
	var bare policy.ColumnSet
	rec.Take(table(3, bare))
	if lacking := rec.Table(&again, p.columns); len(lacking) != 0 {
		t.Errorf("a recording lacks %v; want nothing: the pipeline makes it", lacking)
	}
}

func TestPickerAloneDecides(t *testing.T) {
	rev := revision(t, policy.Spec{Picker: picker("module:p")}, modules{"module:p": picks(policy.Choice{Row: 2})})
	if d := decided(t, rev, 3); d.Row != 2 || len(d.StageScores) != 0 {
		t.Errorf("got row %d, scores %v", d.Row, d.StageScores)
	}
}
