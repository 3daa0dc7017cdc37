package policy_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/routerd/routerd/core/policy"
)

func canaried(t *testing.T, c policy.Canary) (h *policy.Handle, active, canary *policy.Revision) {
	t.Helper()
	active = revision(t, use("module:a"), modules{"module:a": scores(1)})
	canary = revision(t, use("module:b"), modules{"module:b": scores(1)})
	h, err := policy.NewHandle(active)
	if err != nil {
		t.Fatal(err)
	}
	c.Revision = canary
	if err := h.SetCanary(&c); err != nil {
		t.Fatal(err)
	}
	return h, active, canary
}

func took(h *policy.Handle, ask policy.Ask) *policy.Revision {
	l := h.Acquire(ask)
	defer l.Release()
	return l.Revision
}

func TestACanaryGetsItsShareOfTheRequests(t *testing.T) {
	t.Parallel()
	h, _, canary := canaried(t, policy.Canary{Percent: 10})
	n := 0
	for seed := range uint64(20_000) {
		if took(h, policy.Ask{Seed: policy.SplitMix64(seed)}) == canary {
			n++
		}
	}
	if share := float64(n) / 200; math.Abs(share-10) > 1 {
		t.Errorf("the canary took %.1f %%, want 10 ± 1", share)
	}
}

func TestASessionStaysOnOneSideOfACanary(t *testing.T) {
	t.Parallel()
	h, _, canary := canaried(t, policy.Canary{Percent: 50, BySession: true})
	sides := map[bool]int{}
	for i := range 200 {
		session := string(rune('a'+i%26)) + string(rune('a'+i/26))
		first := took(h, policy.Ask{Seed: 1, Session: session}) == canary
		sides[first]++
		for seed := range uint64(20) {
			if took(h, policy.Ask{Seed: seed, Session: session}) == canary != first {
				t.Fatalf("session %q changed sides", session)
			}
		}
	}
	if sides[true] < 60 || sides[false] < 60 {
		t.Errorf("200 sessions at 50 %% split %v", sides)
	}
}

func TestACanaryByHeaderTakesThoseRequestsAlone(t *testing.T) {
	t.Parallel()
	h, active, canary := canaried(t, policy.Canary{Header: "x-team", Value: "blue"})
	header := func(v string) func(string) string {
		return func(name string) string {
			if name == "x-team" {
				return v
			}
			return ""
		}
	}
	for want, ask := range map[*policy.Revision]policy.Ask{
		canary: {Seed: 3, Header: header("blue")},
		active: {Seed: 3, Header: header("red")},
	} {
		if took(h, ask) != want {
			t.Errorf("%v went to the other side", ask)
		}
	}
	if took(h, policy.Ask{Seed: 3}) != active {
		t.Error("a request without headers went to the canary")
	}
}

func TestACanaryThatHasTrippedDecidesNoMore(t *testing.T) {
	t.Parallel()
	active := revision(t, use("module:a"), modules{"module:a": scores(1)})
	var tripped []*policy.Fault
	bad := revision(t, use("module:b"), modules{"module:b": faulty(policy.Fault{Code: "E_TRAP", Reason: "trap", Counts: true})},
		policy.OnTrip(func(_ *policy.Revision, f *policy.Fault) { tripped = append(tripped, f) }))
	h, err := policy.NewHandle(active)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.SetCanary(&policy.Canary{Revision: bad, Percent: 100}); err != nil {
		t.Fatal(err)
	}
	var d policy.Decision
	for range 3 {
		l := h.Acquire(policy.Ask{})
		if l.Revision != bad || !l.Canary {
			t.Fatal("the canary did not decide")
		}
		if err := l.Decide(t.Context(), table(1, l.Columns), &d); err != nil {
			t.Fatal(err)
		}
		l.Release()
	}
	if len(tripped) != 1 || tripped[0].Reason != "trap" {
		t.Errorf("OnTrip heard %v, want one trap", tripped)
	}
	if took(h, policy.Ask{}) != active {
		t.Error("a tripped canary still decides")
	}
}

func TestACanaryThatIsPublishedEndsAsCanary(t *testing.T) {
	t.Parallel()
	h, active, canary := canaried(t, policy.Canary{Percent: 0})
	if err := h.Publish(canary); err != nil {
		t.Fatal(err)
	}
	active.Retire()
	canary.Retire()
	select {
	case <-active.Closed():
	default:
		t.Error("the revision before is still open")
	}
	if l := h.Acquire(policy.Ask{}); l.Revision != canary || l.Canary {
		t.Error("the promoted revision does not decide as the active one")
	}
}

func TestARevisionOnProbationTripsAtItsFirstFault(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.call(3, trap)
	g.rev.HalfOpen()
	g.call(5, nil)
	if g.call(1, trap); g.rev.State() != policy.Tripped {
		t.Error("a fault on probation did not trip at once")
	}
	g.rev.HalfOpen()
	g.call(20, nil)
	if g.call(1, trap); g.rev.State() == policy.Tripped {
		t.Error("probation did not end after 20 good calls")
	}
}

func TestAReplayIsOutsideTheTraffic(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.fault = trap
	var d policy.Decision
	for range 10 {
		if err := g.rev.Replay(t.Context(), g.table, &d); err == nil {
			t.Fatal("a replay hid a fault")
		}
	}
	if s := g.rev.Stats(); s.Calls != 0 || g.rev.State() == policy.Tripped {
		t.Errorf("replays were counted: %+v", s)
	}
	if !g.table.Quiet {
		t.Error("a replay was not quiet")
	}
}

func TestACanaryThatWouldRefuseARequestsOverridesLeavesItToTheActiveRevision(t *testing.T) {
	t.Parallel()
	knows := scores(1)
	knows.knows = "sign"
	active := revision(t, use("module:a"), modules{"module:a": knows})
	canary := revision(t, use("module:b"), modules{"module:b": scores(1)})
	h, err := policy.NewHandle(active)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.SetCanary(&policy.Canary{Revision: canary, Percent: 100}); err != nil {
		t.Fatal(err)
	}
	if took(h, policy.Ask{}) != canary {
		t.Error("a request without overrides did not go to the canary")
	}
	if took(h, policy.Ask{Overrides: map[string]json.RawMessage{"sign": json.RawMessage("2")}}) != active {
		t.Error("the canary took a request that it would refuse")
	}
}
