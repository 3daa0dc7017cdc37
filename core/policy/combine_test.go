package policy_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
)

func ptr(v float64) *float64 { return &v }

// two is a specification of two module scorers, changed by f.
func two(f func(a, b *policy.ScorerSpec)) policy.Spec {
	s := use("module:a", "module:b")
	f(&s.Scorers[0], &s.Scorers[1])
	return s
}

func TestCombine(t *testing.T) {
	abstains := &scripted{answer: func(*policy.Table, []float64) (policy.Verdict, error) { return policy.Abstained, nil }}
	trap := policy.Fault{Code: "E_TRAP", Reason: "trap", Counts: true}
	for name, c := range map[string]struct {
		a, b   *scripted
		spec   func(a, b *policy.ScorerSpec)
		totals []float64
		row    int
		by     policy.By
	}{
		"sum":     {scores(1, 2, 3), scores(5, 0, 0), func(_, _ *policy.ScorerSpec) {}, []float64{6, 2, 3}, 0, policy.ByPolicy},
		"weights": {scores(1, 2, 3), scores(5, 0, 0), func(a, b *policy.ScorerSpec) { a.Weight, b.Weight = ptr(10), ptr(-1) }, []float64{5, 20, 30}, 2, policy.ByPolicy},
		"minmax":  {scores(10, 20, 30), scores(4, 4, 4), func(a, b *policy.ScorerSpec) { a.Normalise, b.Normalise = "minmax", "minmax" }, []float64{0.5, 1, 1.5}, 2, policy.ByPolicy},
		"rank":    {scores(7, 7, 100), scores(0, 0, 0), func(a, _ *policy.ScorerSpec) { a.Normalise = "rank" }, []float64{0.25, 0.25, 1}, 2, policy.ByPolicy},
		"clamped": {scores(1e308, -1e308, 0), scores(1e308, 0, 0), func(_, _ *policy.ScorerSpec) {}, []float64{1e300, -1e300, 0}, 0, policy.ByPolicy},
		"no opinion is the median": {
			scores(math.NaN(), 1, 2), scores(0, 0, 0), func(_, _ *policy.ScorerSpec) {},
			[]float64{1.5, 1, 2},
			2, policy.ByPolicy,
		},
		"abstain drops the term": {abstains, scores(0, 1, 0), func(_, _ *policy.ScorerSpec) {}, []float64{0, 1, 0}, 1, policy.ByPolicy},
		"skip drops the term":    {faulty(trap), scores(0, 1, 0), func(a, _ *policy.ScorerSpec) { a.OnError = "skip" }, []float64{0, 1, 0}, 1, policy.ByPolicy},
	} {
		t.Run(name, func(t *testing.T) {
			rev := revision(t, two(c.spec), modules{"module:a": c.a, "module:b": c.b})
			var d policy.Decision
			if err := rev.Decide(t.Context(), table(3, rev.Columns()), &d); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.totals, d.Totals); diff != "" || d.Row != c.row || d.By != c.by {
				t.Errorf("row %d by %s, want %d by %s; totals (-want +got):\n%s", d.Row, d.By, c.row, c.by, diff)
			}
		})
	}
}

func TestQ4_ScoresThatAreNotNumbers(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, c := range map[string]struct {
		scores  []float64
		row     int
		by      policy.By
		cleaned int
	}{
		"one of three":   {[]float64{nan, 1, 2}, 2, policy.ByPolicy, 1},
		"two of three":   {[]float64{inf, nan, 2}, 0, policy.ByFallback, 0},
		"all of three":   {[]float64{nan, nan, nan}, 0, policy.ByFallback, 0},
		"half of four":   {[]float64{nan, -inf, 1, 2}, 3, policy.ByPolicy, 2},
		"negative zeros": {[]float64{math.Copysign(0, -1), 0, -1}, 0, policy.ByPolicy, 0},
	} {
		t.Run(name, func(t *testing.T) {
			spec := use("module:m")
			spec.Fallback = "builtin:round-robin" // picks row 0
			rev := revision(t, spec, modules{"module:m": scores(c.scores...)})
			var d policy.Decision
			tb := table(len(c.scores), rev.Columns())
			tb.Seed = 9 // the draw between two zeros: the first
			if err := rev.Decide(t.Context(), tb, &d); err != nil {
				t.Fatal(err)
			}
			if d.Row != c.row && name != "negative zeros" || d.By != c.by || d.Cleaned != c.cleaned {
				t.Errorf("got row %d by %s, cleaned %d; want %d by %s, %d", d.Row, d.By, d.Cleaned, c.row, c.by, c.cleaned)
			}
			if (d.Fault != nil) != (c.by == policy.ByFallback) || d.Fault != nil && d.Fault.Code != "E_NAN" {
				t.Errorf("got fault %v", d.Fault)
			}
			if name == "negative zeros" && d.Tie.Rows != 2 {
				t.Errorf("got %d equal rows; want -0 and 0 to be equal", d.Tie.Rows)
			}
		})
	}
}

func TestOnError(t *testing.T) {
	trap := policy.Fault{Stage: "module:m", Code: "E_TRAP", Reason: "trap", Counts: true, Fuel: 7}
	for _, c := range []struct {
		onError string
		by      policy.By
		fails   bool
	}{{"fallback", policy.ByFallback, false}, {"skip", policy.ByPolicy, false}, {"fail", "", true}} {
		t.Run(c.onError, func(t *testing.T) {
			spec := use("module:m")
			spec.Scorers[0].OnError = c.onError
			rev := revision(t, spec, modules{"module:m": faulty(trap)})
			var d policy.Decision
			err := rev.Decide(t.Context(), table(2, rev.Columns()), &d)
			if f, ok := errors.AsType[*policy.Fault](err); ok != c.fails || c.fails && f.Code != "E_TRAP" {
				t.Fatalf("got error %v", err)
			}
			if !c.fails && (d.By != c.by || d.Fault == nil) {
				t.Errorf("got by %s, fault %v; want by %s and the fault", d.By, d.Fault, c.by)
			}
			if got := rev.Stats(); got.Calls != 1 || got.Faults["trap"] != 1 {
				t.Errorf("got stats %+v; want 1 call, 1 trap", got)
			}
		})
	}
}

func TestErrorThatIsNoFaultIsATrapOfTheStage(t *testing.T) {
	broken := &scripted{answer: func(*policy.Table, []float64) (policy.Verdict, error) { return 0, errors.New("broken") }}
	rev := revision(t, use("module:m"), modules{"module:m": broken})
	var d policy.Decision
	if err := rev.Decide(t.Context(), table(2, rev.Columns()), &d); err != nil {
		t.Fatal(err)
	}
	if d.By != policy.ByFallback || d.Fault.Code != "E_TRAP" || d.Fault.Detail != "broken" {
		t.Errorf("got by %s, fault %+v", d.By, d.Fault)
	}
}

func TestEndOfTheRequestIsNoFault(t *testing.T) {
	rev := revision(t, use("module:m"), modules{"module:m": scores(1, 2)})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("client has gone")
	cancel(gone)
	var d policy.Decision
	if err := rev.Decide(ctx, table(2, rev.Columns()), &d); !errors.Is(err, gone) {
		t.Errorf("got %v; want the cause", err)
	}
	if got := rev.Stats(); len(got.Faults) != 0 {
		t.Errorf("got faults %v; want none", got.Faults)
	}
}

func TestTimeIsOverMeansFallback(t *testing.T) {
	rev := revision(t, use("module:m"), modules{"module:m": scores(1, 2)})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(policy.ErrOutOfTime)
	var d policy.Decision
	if err := rev.Decide(ctx, table(2, rev.Columns()), &d); err != nil {
		t.Fatal(err)
	}
	if d.By != policy.ByFallback || d.Fault.Reason != "turn" || d.Fault.Counts {
		t.Errorf("got by %s, fault %+v; want the fallback and a fault that does not count", d.By, d.Fault)
	}
}

func TestTies(t *testing.T) {
	if got := policy.SplitMix64(1234567); got != 6457827717110365317 {
		t.Fatalf("SplitMix64(1234567) = %d; want 6457827717110365317", got)
	}
	rev := revision(t, use("module:m"), modules{"module:m": scores(1, 3, 3, 3)})
	tb := table(4, rev.Columns())
	var d policy.Decision
	var rows [4]int
	for seed := range uint64(3000) {
		tb.Seed = seed
		if err := rev.Decide(t.Context(), tb, &d); err != nil {
			t.Fatal(err)
		}
		if want := policy.TieDraw(seed); d.Tie != (policy.Tie{Rows: 3, Draw: want}) || d.Row != 1+int(want*3) {
			t.Fatalf("seed %d: got row %d, tie %+v; want the row that the draw %v names", seed, d.Row, d.Tie, want)
		}
		rows[d.Row]++
	}
	for _, n := range rows[1:] {
		if n < 900 || n > 1100 {
			t.Errorf("draws are not uniform: %v", rows)
		}
	}
}

// turns are the picks of six requests of a partition.
func turns(t *testing.T, rev *policy.Revision, rows int) (picks []int) {
	t.Helper()
	tb := table(rows, rev.Columns())
	var d policy.Decision
	for n := range uint64(6) {
		tb.Sequence = n
		if err := rev.Decide(t.Context(), tb, &d); err != nil {
			t.Fatal(err)
		}
		picks = append(picks, d.Row)
	}
	return picks
}

func TestRoundRobinTakesTurns(t *testing.T) {
	rev := revision(t, use("builtin:round-robin"), nil)
	got := turns(t, rev, 3)
	if diff := cmp.Diff([]int{0, 1, 2, 0, 1, 2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A stage that says that its scores are clean is believed; one that does not is
// cleaned.
func TestScoresThatAreCleanAreNotCleanedAgain(t *testing.T) {
	t.Parallel()
	for _, finite := range []bool{false, true} {
		s := &scripted{finite: finite, answer: func(_ *policy.Table, out []float64) (policy.Verdict, error) {
			copy(out, []float64{1, math.NaN(), 3})
			return policy.Answered, nil
		}}
		rev := revision(t, use("module:m"), modules{"module:m": s})
		var d policy.Decision
		if err := rev.Decide(t.Context(), table(3, rev.Columns()), &d); err != nil {
			t.Fatal(err)
		}
		if cleaned := d.Cleaned == 1; cleaned == finite {
			t.Errorf("finite %t: %d scores were cleaned", finite, d.Cleaned)
		}
	}
}
