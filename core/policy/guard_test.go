package policy_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/core/policy"
)

// guarded is a revision whose one stage faults when told to.
type guarded struct {
	t     *testing.T
	rev   *policy.Revision
	table *policy.Table
	fault *policy.Fault
}

func newGuarded(t *testing.T, opts ...policy.RevisionOption) *guarded {
	g := &guarded{t: t}
	s := &scripted{answer: func(*policy.Table, []float64) (policy.Verdict, error) {
		if g.fault != nil {
			return 0, g.fault
		}
		return policy.Answered, nil
	}}
	s.answer = func(inner func(*policy.Table, []float64) (policy.Verdict, error)) func(*policy.Table, []float64) (policy.Verdict, error) {
		return func(t *policy.Table, out []float64) (policy.Verdict, error) {
			clear(out)
			return inner(t, out)
		}
	}(s.answer)
	g.rev = revision(t, use("module:m"), modules{"module:m": s}, opts...)
	g.table = table(2, g.rev.Columns())
	return g
}

func (g *guarded) call(n int, f *policy.Fault) policy.By {
	g.t.Helper()
	g.fault = f
	var d policy.Decision
	for range n {
		if err := g.rev.Decide(g.t.Context(), g.table, &d); err != nil {
			g.t.Fatal(err)
		}
	}
	return d.By
}

var trap = &policy.Fault{Code: "E_TRAP", Reason: "trap", Counts: true}

func TestGuardTrips(t *testing.T) {
	capacity := &policy.Fault{Reason: "capacity"}
	cheap := &policy.Fault{Code: "E_FUEL", Reason: "deadline", Counts: true, Fuel: 999_999}
	dear := &policy.Fault{Code: "E_FUEL", Reason: "deadline", Counts: true, Fuel: 1_000_000}
	for name, c := range map[string]struct {
		run  func(g *guarded)
		want bool // tripped
	}{
		"three in a row": {func(g *guarded) { g.call(3, trap) }, true},
		"two in a row":   {func(g *guarded) { g.call(2, trap); g.call(1, nil); g.call(2, trap) }, false},
		"five of twenty": {func(g *guarded) {
			for range 4 {
				g.call(1, trap)
				g.call(4, nil)
			}
			g.call(1, trap) // the 21st call
		}, true},
		"five of fewer than twenty": {func(g *guarded) {
			for range 5 {
				g.call(1, trap)
				g.call(1, nil)
			}
		}, false},
		"five of more than five hundred": {func(g *guarded) {
			for range 5 {
				g.call(120, nil)
				g.call(1, trap)
			}
		}, false},
		"old faults": {func(g *guarded) {
			for range 4 {
				g.call(1, trap)
				g.call(4, nil)
			}
			<-time.After(11 * time.Second)
			g.call(30, nil)
			g.call(1, trap)
		}, false},
		"capacity":                    {func(g *guarded) { g.call(50, capacity) }, false},
		"deadlines of little fuel":    {func(g *guarded) { g.call(50, cheap) }, false},
		"deadlines in a row":          {func(g *guarded) { g.call(4, dear) }, false},
		"deadlines by the rate":       {func(g *guarded) { g.call(20, nil); g.call(5, dear) }, true},
		"deadlines among other calls": {func(g *guarded) { g.call(1, trap); g.call(1, dear); g.call(2, trap) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuarded(t)
				c.run(g)
				if got := g.rev.State() == policy.Tripped; got != c.want {
					t.Errorf("tripped is %v; want %v", got, c.want)
				}
			})
		})
	}
}

func TestTrippedGoesStraightToTheFallbackUntilRetry(t *testing.T) {
	g := newGuarded(t)
	g.call(3, trap)
	if by := g.call(1, nil); by != policy.ByFallback {
		t.Errorf("got by %s; want the fallback without a call", by)
	}
	if got := g.rev.Stats(); got.Trips != 1 || got.Calls != 4 || got.Fallbacks != 4 || got.Faults["trap"] != 3 {
		t.Errorf("got %+v; want 1 trip, 4 calls, 4 fallbacks, 3 traps", got)
	}
	g.rev.Retry()
	if by := g.call(1, nil); by != policy.ByPolicy || g.rev.State() != policy.Ready {
		t.Errorf("got by %s, state %s; want the policy", by, g.rev.State())
	}
}

func TestW5_GuardOffNeverTrips(t *testing.T) {
	g := newGuarded(t, guardOff())
	for i := range 100 {
		f := (*policy.Fault)(nil)
		want := policy.ByPolicy
		if i%10 == 0 {
			f, want = trap, policy.ByFallback
		}
		if by := g.call(1, f); by != want {
			t.Fatalf("call %d: got by %s; want %s", i, by, want)
		}
	}
	g.call(10, trap)
	if g.rev.State() == policy.Tripped || g.rev.Stats().Faults["trap"] != 20 {
		t.Errorf("got state %s, %+v; want not tripped and 20 traps", g.rev.State(), g.rev.Stats())
	}
}

func TestTheGuardIsSwitchedWhileARevisionDecides(t *testing.T) {
	t.Parallel()
	var off atomic.Bool
	g := newGuarded(t, policy.GuardSwitch(&off))
	off.Store(true)
	if g.call(10, trap); g.rev.State() == policy.Tripped || g.rev.Stats().Trips != 0 {
		t.Errorf("tripped with the guard off: %+v", g.rev.Stats())
	}
	off.Store(false)
	if g.call(3, trap); g.rev.State() != policy.Tripped {
		t.Error("three faults with the guard on again did not trip")
	}
}

func TestARevisionThatIsTrippedFromOutsideIsDecidedByItsFallback(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.rev.Trip()
	if by := g.call(1, nil); by != policy.ByFallback || g.rev.State() != policy.Tripped {
		t.Errorf("decided by %s in state %s", by, g.rev.State())
	}
}
