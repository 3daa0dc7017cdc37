package policy_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// decided is a decision of rev over n rows.
func decided(t *testing.T, rev *policy.Revision, n int) *policy.Decision {
	t.Helper()
	var d policy.Decision
	if err := rev.Decide(t.Context(), table(n, rev.Columns()), &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// mask is a decision's mask as a text.
func mask(d *policy.Decision) string {
	if d.Mask == nil {
		return "all"
	}
	out := make([]byte, len(d.Mask))
	for i, b := range d.Mask {
		out[i] = '0' + b
	}
	return string(out)
}

func TestFiltersNarrowWhatLaterStagesSee(t *testing.T) {
	var seen []string
	first, second := keeps("1101"), keeps("1111") // what is dropped stays dropped
	inner := second.answer
	second.answer = func(t *policy.Table, keep []byte) (policy.Verdict, error) {
		seen = append(seen, fmt.Sprint(keep))
		v, err := inner(t, keep)
		keep[0] = 0
		return v, err
	}
	s := scores(9, 1, 9, 2)
	s.answer = func(inner func(*policy.Table, []float64) (policy.Verdict, error)) func(*policy.Table, []float64) (policy.Verdict, error) {
		return func(t *policy.Table, out []float64) (policy.Verdict, error) {
			seen = append(seen, fmt.Sprint(t.Mask()), fmt.Sprint(t.Kept(0), t.Kept(1)))
			return inner(t, out)
		}
	}(s.answer)
	rev := revision(t, filtered([]string{"module:f", "module:g"}, []string{"module:s"}, nil), modules{"module:f": first, "module:g": second, "module:s": s})
	d := decided(t, rev, 4)
	if d.Row != 3 || mask(d) != "0101" || d.MaskedBy[0] != 1 || d.MaskedBy[2] != 0 {
		t.Errorf("got row %d, mask %s, masked by %v; want 3, 0101, row 0 by the second filter, row 2 by the first", d.Row, mask(d), d.MaskedBy)
	}
	if diff := cmp.Diff([]string{"[1 1 0 1]", "[0 1 0 1]", "false true"}, seen); diff != "" {
		t.Errorf("what the stages saw (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{0, 1, 0, 2}, d.Totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	want := []policy.StageName{{Kind: abi.KindFilter, Use: "module:f"}, {Kind: abi.KindFilter, Use: "module:g"}, {Kind: abi.KindScorer, Use: "module:s"}, {Kind: abi.KindPicker, Use: "builtin:best"}}
	if diff := cmp.Diff(want, rev.Stages()); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
}

func TestFilterThatKeepsAllLeavesNoMask(t *testing.T) {
	rev := revision(t, filtered([]string{"module:f"}, []string{"module:s"}, nil), modules{"module:f": keeps("11"), "module:s": scores(1, 2)})
	if d := decided(t, rev, 2); mask(d) != "all" || d.Row != 1 {
		t.Errorf("got mask %s, row %d; want none, 1", mask(d), d.Row)
	}
}

func TestFilterThatAbstainsLeavesTheMask(t *testing.T) {
	abstains := keeps("0000")
	inner := abstains.answer
	abstains.answer = func(t *policy.Table, keep []byte) (policy.Verdict, error) {
		_, err := inner(t, keep)
		return policy.Abstained, err
	}
	rev := revision(t, filtered([]string{"module:f", "module:g"}, []string{"module:s"}, nil), modules{"module:f": keeps("0110"), "module:g": abstains, "module:s": scores(9, 1, 2, 9)})
	if d := decided(t, rev, 4); mask(d) != "0110" || d.Row != 2 || d.Abstained != 1 || d.Emptied != 0 {
		t.Errorf("got mask %s, row %d, %d abstained, %d emptied", mask(d), d.Row, d.Abstained, d.Emptied)
	}
}

func TestOnEmpty(t *testing.T) {
	for _, c := range []struct {
		onEmpty string
		fails   bool
	}{{"", false}, {"ignore", false}, {"fail", true}} {
		t.Run(c.onEmpty, func(t *testing.T) {
			spec := filtered([]string{"module:f", "module:g", "module:h"}, []string{"module:s"}, func(s *policy.Spec) { s.Filters[1].OnEmpty = c.onEmpty })
			rev := revision(t, spec, modules{"module:f": keeps("0111"), "module:g": keeps("1000"), "module:h": keeps("1101"), "module:s": scores(9, 1, 9, 2)})
			var d policy.Decision
			err := rev.Decide(t.Context(), table(4, rev.Columns()), &d)
			if errors.Is(err, policy.ErrEmptied) != c.fails || !c.fails && err != nil {
				t.Fatalf("got %v", err)
			}
			stats := rev.Stats()
			if stats.Calls != 1 || len(stats.Faults) != 0 || rev.State() == policy.Tripped {
				t.Errorf("got %+v; want one call, no fault", stats)
			}
			if c.fails {
				return
			}
			if mask(&d) != "0101" || d.Row != 3 || d.Emptied != 1 || stats.Emptied != 1 {
				t.Errorf("got mask %s, row %d, %d emptied; want the second filter left out alone", mask(&d), d.Row, d.Emptied)
			}
		})
	}
}

func TestFilterFaults(t *testing.T) {
	traps := &filtering{answer: func(*policy.Table, []byte) (policy.Verdict, error) {
		return 0, &policy.Fault{Stage: "module:f", Code: "E_TRAP", Reason: "trap", Counts: true}
	}}
	for name, c := range map[string]struct {
		filter  *filtering
		onError string
		code    string
		by      policy.By // empty for an error
		row     int
	}{
		"trap, fallback":          {traps, "fallback", "E_TRAP", policy.ByFallback, 0},
		"trap, skip":              {traps, "skip", "E_TRAP", policy.ByPolicy, 2},
		"trap, fail":              {traps, "fail", "E_TRAP", "", 0},
		"W6: byte 7 in the mask":  {keeps("170"), "fallback", "E_MASK", policy.ByFallback, 0},
		"byte 2, skip":            {keeps("211"), "skip", "E_MASK", policy.ByPolicy, 2},
		"byte 2, fail":            {keeps("112"), "fail", "E_MASK", "", 0},
		"all dropped is no fault": {keeps("000"), "fail", "", policy.ByPolicy, 2},
	} {
		t.Run(name, func(t *testing.T) {
			spec := filtered([]string{"module:f"}, []string{"module:s"}, func(s *policy.Spec) {
				s.Filters[0].OnError, s.Fallback = c.onError, "builtin:round-robin"
			})
			rev := revision(t, spec, modules{"module:f": c.filter, "module:s": scores(1, 2, 3)})
			var d policy.Decision
			err := rev.Decide(t.Context(), table(3, rev.Columns()), &d)
			if _, ok := errors.AsType[*policy.Fault](err); ok != (c.by == "") {
				t.Fatalf("got error %v", err)
			}
			if c.by != "" && (d.By != c.by || d.Row != c.row || mask(&d) != "all") {
				t.Errorf("got row %d by %s, mask %s; want %d by %s", d.Row, d.By, mask(&d), c.row, c.by)
			}
			if got := d.Fault; (got == nil) != (c.code == "") || got != nil && got.Code != c.code {
				t.Errorf("got fault %v; want %s", got, c.code)
			}
		})
	}
}

func TestBytesOfRowsThatWereDroppedAreNotRead(t *testing.T) {
	rev := revision(t, filtered([]string{"module:f", "module:g"}, []string{"module:s"}, nil), modules{"module:f": keeps("011"), "module:g": keeps("711"), "module:s": scores(9, 1, 2)})
	if d := decided(t, rev, 3); d.Fault != nil || mask(d) != "011" || d.Row != 2 {
		t.Errorf("got fault %v, mask %s, row %d", d.Fault, mask(d), d.Row)
	}
}

// trappingFilter faults when it is called, as trappingPicker does.
func trappingFilter() *filtering {
	return &filtering{answer: func(*policy.Table, []byte) (policy.Verdict, error) { f := *trap; return 0, &f }}
}

func trappingPicker() *picking {
	return &picking{answer: func(*policy.Table, []float64) (policy.Choice, policy.Verdict, error) {
		f := *trap
		return policy.Choice{}, 0, &f
	}}
}

func TestFallbackDecidesAmongWhatTheFiltersHaveKept(t *testing.T) {
	src := func() modules {
		return modules{
			"module:f": keeps("0111"), "module:g": keeps("1011"), "module:none": keeps("0000"), "module:byte": keeps("0070"),
			"module:ft": trappingFilter(), "module:s": scores(1, 2, 3, 4), "module:st": faulty(*trap), "module:pt": trappingPicker(),
		}
	}
	for name, c := range map[string]struct {
		filters []string
		scorer  string
		picker  string
		skip    int // the filter whose on_error is skip, from 1
		mask    string
		by      []int16 // of masked rows, in order
		row     int
		totals  []float64
	}{
		"a scorer faults":           {[]string{"f"}, "st", "", 0, "0111", []int16{0}, 1, []float64{0, 0, -1, -2}},
		"a picker faults":           {[]string{"f", "g"}, "s", "pt", 0, "0011", []int16{0, 1}, 2, []float64{0, 0, 0, -1}},
		"the second filter faults":  {[]string{"f", "ft", "g"}, "s", "", 0, "0111", []int16{0}, 1, []float64{0, 0, -1, -2}},
		"a bad mask is no verdict":  {[]string{"g", "byte"}, "s", "", 0, "1011", []int16{0}, 0, []float64{0, 0, -1, -2}},
		"the first filter faults":   {[]string{"ft", "f"}, "s", "", 0, "all", nil, 0, []float64{0, -1, -2, -3}},
		"a skipped filter, scorer":  {[]string{"ft", "g"}, "st", "", 1, "1011", []int16{1}, 0, []float64{0, 0, -1, -2}},
		"an ignored filter, scorer": {[]string{"f", "none"}, "st", "", 0, "0111", []int16{0}, 1, []float64{0, 0, -1, -2}},
	} {
		t.Run(name, func(t *testing.T) {
			var filters []string
			for _, f := range c.filters {
				filters = append(filters, "module:"+f)
			}
			spec := filtered(filters, []string{"module:" + c.scorer}, func(s *policy.Spec) {
				s.Fallback = "builtin:round-robin"
				if c.skip > 0 {
					s.Filters[c.skip-1].OnError = "skip"
				}
				if c.picker != "" {
					s.Picker = picker("module:" + c.picker)
				}
			})
			rev := revision(t, spec, src())
			d := decided(t, rev, 4)
			var by []int16
			for row := range d.Mask {
				if d.Mask[row] == 0 {
					by = append(by, d.MaskedBy[row])
				}
			}
			if d.By != policy.ByFallback || d.Row != c.row || mask(d) != c.mask || d.Fault == nil {
				t.Errorf("got row %d by %s, mask %s, fault %v; want row %d, mask %s", d.Row, d.By, mask(d), d.Fault, c.row, c.mask)
			}
			if diff := cmp.Diff(c.by, by); diff != "" {
				t.Errorf("masked by (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.totals, d.Totals); diff != "" {
				t.Errorf("totals (-want +got):\n%s", diff)
			}
			var again policy.Decision
			tb := table(4, rev.Columns())
			if err := rev.Replay(t.Context(), tb, &again); err == nil {
				t.Fatal("replayed without the fault")
			}
			rev.ReplayFallback(t.Context(), tb, &again)
			if again.Row != d.Row || again.Tie != d.Tie || again.By != d.By || mask(&again) != mask(d) || !cmp.Equal(again.Totals, d.Totals) || !cmp.Equal(again.MaskedBy, d.MaskedBy) {
				t.Errorf("replayed: got row %d, mask %s by %v, totals %v; want %d, %s by %v, %v",
					again.Row, mask(&again), again.MaskedBy, again.Totals, d.Row, mask(d), d.MaskedBy, d.Totals)
			}
		})
	}
}

func TestTheCallThatTripsKeepsItsFiltersAndTheNextAsksNone(t *testing.T) {
	spec := filtered([]string{"module:f"}, []string{"module:s"}, func(s *policy.Spec) { s.Fallback = "builtin:round-robin" })
	rev := revision(t, spec, modules{"module:f": keeps("0011"), "module:s": faulty(*trap)})
	var got []string
	for range 4 {
		d := decided(t, rev, 4)
		got = append(got, fmt.Sprintf("%d %s %v", d.Row, mask(d), d.Tripped))
	}
	if diff := cmp.Diff([]string{"2 0011 false", "2 0011 false", "2 0011 true", "0 all false"}, got); diff != "" {
		t.Errorf("row, mask, tripped (-want +got):\n%s", diff)
	}
}

func TestMaskOfOneDecisionIsNotSeenByTheNext(t *testing.T) {
	n := 0
	f := &filtering{answer: func(_ *policy.Table, keep []byte) (policy.Verdict, error) {
		if n++; n == 1 {
			keep[0] = 0
		}
		return policy.Answered, nil
	}}
	rev := revision(t, filtered([]string{"module:f"}, []string{"module:s"}, nil), modules{"module:f": f, "module:s": scores(2, 1)})
	tb := table(2, rev.Columns())
	var d policy.Decision
	for i, want := range []int{1, 0} {
		if err := rev.Decide(t.Context(), tb, &d); err != nil || d.Row != want {
			t.Errorf("decision %d: got row %d, %v; want %d", i, d.Row, err, want)
		}
	}
	n = 0
	_ = rev.Decide(t.Context(), tb, &d)
	if rev.Fix(tb, &d, 0, policy.ByPin); d.Mask != nil || tb.Mask() != nil {
		t.Error("a fixed decision has the mask of the one before")
	}
}
