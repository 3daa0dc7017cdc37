//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	. "github.com/routerd/routerd/host/wasmtest"
)

// unhurried lets guests have the time that a crowded machine takes from them, so
// that no fallback decides for them.
const unhurried = "  call_deadline: 1s\n  pool_wait: 1s\n"

// between is the worker that the canary of the swap test chooses.
const between = "w2"

// The active revision is swapped under load while a canary runs: none fails,
// none that was sent after an activate call had returned is decided by the
// revision before it, and the canary keeps its share.
func TestO1_SwapUnderLoadBesideACanary(t *testing.T) {
	t.Parallel() // it measures no times
	const percent = 20
	r := startRouter(t, three(t)+"plugins:\n"+unhurried)
	revisions := map[string]int{lowest: r.revise("lowest", byID("lowest", false)), highest: r.revise("highest", byID("highest", true))}
	r.activate(revisions[lowest])
	canary := r.revise("nearest", byDistance(2))
	r.canary(canary, percent)

	var done []swapped
	shots := during(r, func() { done = swaps(r, revisions, canaryRun, canaryRun/8) })
	proven := decidedInTurn(t, shots, done, between)
	share := 100 * float64(shares(shots)[between]) / float64(len(shots))
	t.Logf("%d requests and %d swaps; %.1f %% decided by the canary", len(shots), len(done), share)
	if share < percent/2 || share > percent*3/2 {
		t.Errorf("the canary decided %.1f %%, want about %d", share, percent)
	}
	if min(proven[lowest], proven[highest]) < len(shots)/8 {
		t.Errorf("the revisions answered %v requests between swaps, want each a good part of %d", proven, len(shots))
	}
	if p := r.policy("default"); p.Canary == nil || p.Canary.Revision != canary || p.Canary.Percent != percent {
		t.Errorf("the canary is %+v after the swaps, want revision %d at %d %%", p.Canary, canary, percent)
	}
}

// rolledOut is what of a policy must come back after any crash.
type rolledOut struct {
	Active, Previous int
	Canary, Shadow   string
}

func (p *policyView) rolledOut() rolledOut {
	s := rolledOut{Active: p.Active, Previous: p.Previous}
	if c := p.Canary; c != nil {
		s.Canary = fmt.Sprintf("%d at %v %% by %s", c.Revision, c.Percent, c.By)
	}
	if c := p.Shadow; c != nil {
		s.Shadow = fmt.Sprintf("%d at %v", c.Revision, c.Sample)
	}
	return s
}

// A candidate that starts to trap while it decides half of the requests rolls
// itself back: no request fails, and everybody can see who ended it and why,
// also after a crash and after a restart.
func TestACanaryThatStartsToTrapRollsItselfBack(t *testing.T) {
	t.Parallel() // it measures no times
	yaml := three(t) + "plugins:\n" + unhurried
	r := startRouter(t, yaml)
	active := r.revise("lowest", byID("lowest", false))
	r.activate(active)
	candidate := r.revise("candidate", armed(Guest{}, Op(Unreachable)).Bytes())
	r.canary(candidate, 50)
	during := rolledOut{Active: active, Previous: 1, Canary: fmt.Sprintf("%d at 50 %% by request", candidate)}

	l := startLoad(r, callers, swapRate)
	l.reach(t, swapRate/2)
	noneFailed(t, l.end())
	r.kill()
	r = again(t, r, yaml)
	p := r.policy("default")
	if diff := cmp.Diff(during, p.rolledOut()); diff != "" {
		t.Fatalf("after a crash amid the canary (-want +got)\n%s", diff)
	}

	l = startLoad(r, callers, swapRate)
	l.reach(t, swapRate)
	l.tokens.Store(armedAt)
	spoilt := time.Now()
	l.reach(t, swapRate)
	l.tokens.Store(2)
	eventually(t, 10*time.Second, func() error {
		if p = r.policy("default"); p.Canary != nil {
			return fmt.Errorf("the canary is %+v", p.Canary)
		}
		return nil
	})
	ended := time.Now()
	l.reach(t, swapRate/2)
	shots := l.end()
	noneFailed(t, shots)

	var well, after []shot
	for _, s := range shots {
		switch {
		case s.done.Before(spoilt):
			well = append(well, s)
		case s.sent.After(ended):
			after = append(after, s)
		}
	}
	t.Logf("%d requests; before the candidate went wrong %v, after the rollback %v", len(shots), shares(well), shares(after))
	if n := shares(well)[highest]; n < len(well)*3/10 || n > len(well)*7/10 {
		t.Errorf("the canary decided %d of %d requests, want about half", n, len(well))
	}
	if n := shares(after)[lowest]; n != len(after) {
		t.Errorf("the active revision decided %d of %d requests after the rollback", n, len(after))
	}

	rolledBack := rolledOut{Active: active, Previous: 1}
	shown := func(when string) {
		t.Helper()
		p := r.policy("default")
		if diff := cmp.Diff(rolledBack, p.rolledOut()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", when, diff)
		}
		last := p.History[len(p.History)-1]
		if last.Who != "guard" || last.What != "rollback" || last.Revision != active || last.Previous != candidate || !strings.Contains(last.Why, "unreachable") {
			t.Errorf("%s: the last change is %+v, want the guard's rollback of %d for unreachable", when, last, candidate)
		}
		code, out, said := r.cli("policy", "show", "default")
		if code != 0 || !strings.Contains(out, "guard") || !strings.Contains(out, "unreachable") {
			t.Errorf("%s: exit code %d: %s%s", when, code, out, said)
		}
	}
	shown("at once")
	r.kill()
	r = again(t, r, yaml)
	shown("after a crash")
	r.stop()
	r = again(t, r, yaml)
	shown("after a restart")
	noneFailed(t, burst(t, r, 1, 10))
}

// decidedBy sends a completion with a header and returns the worker.
func (r *router) decidedBy(header, value string) string {
	r.t.Helper()
	a := exchange(r.t, http.MethodPost, r.frontend+"/v1/completions", http.Header{"Content-Type": {"application/json"}, header: {value}},
		[]byte(`{"model":"m","prompt":"one two three","max_tokens":2}`))
	if a.status != http.StatusOK {
		r.t.Fatalf("status %d: %s", a.status, a.body)
	}
	return a.header.Get("x-routerd-worker")
}

// A canary by header takes the requests that have it and no others; one by
// session takes a session whole.
func TestACanaryByHeaderAndBySession(t *testing.T) {
	t.Parallel() // it measures no times
	r := startRouter(t, three(t)+"plugins:\n  headers: [x-team]\n"+unhurried)
	r.activate(r.revise("lowest", byID("lowest", false)))
	candidate := fmt.Sprint(r.revise("highest", byID("highest", true)))
	set := func(args ...string) {
		t.Helper()
		if code, out, said := r.cli(append([]string{"policy", "canary", "default"}, args...)...); code != 0 {
			t.Fatalf("exit code %d: %s%s", code, out, said)
		}
	}
	set(candidate, "--header", "x-team=blue")
	for range 10 {
		for _, c := range []struct{ value, want string }{{"blue", highest}, {"red", lowest}, {"", lowest}} {
			if got := r.decidedBy("X-Team", c.value); got != c.want {
				t.Errorf("x-team %q went to %s, want %s", c.value, got, c.want)
			}
		}
	}
	set(candidate, "--percent", "50", "--by", "session")
	chosen := map[string]int{}
	for i := range 40 {
		session := fmt.Sprint("session ", i)
		first := r.decidedBy("X-Routerd-Session", session)
		chosen[first]++
		for range 3 {
			if got := r.decidedBy("X-Routerd-Session", session); got != first {
				t.Errorf("%s went to %s and to %s", session, first, got)
			}
		}
	}
	if chosen[highest] < 8 || chosen[lowest] < 8 {
		t.Errorf("40 sessions were decided %v, want about half by the canary", chosen)
	}
	set("off")
	if got := r.decidedBy("X-Team", "blue"); got != lowest {
		t.Errorf("after the canary was ended a request went to %s", got)
	}
}
