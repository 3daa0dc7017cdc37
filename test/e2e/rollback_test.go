//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/routerd/routerd/host/wasmtest"
)

// rollbackWithin is how soon what was active before decides again (O4).
const rollbackWithin = time.Second

// A rollback goes to what was active before, a rollback of it forth again, and
// where there is nothing before it is refused.
func TestO4_RollbackAndBack(t *testing.T) {
	r := startRouter(t, three(t))
	v1, v2 := r.revise("lowest", byID("lowest", false)), r.revise("highest", byID("highest", true))
	r.activate(v1)
	r.activate(v2)
	r.chooses(highest)
	back := func(want int, worker string) {
		t.Helper()
		var got struct{ Active, Previous int }
		began := time.Now()
		r.must("POST", "/v1/policies/default/rollback", nil, &got)
		r.chooses(worker)
		if took := time.Since(began); got.Active != want || took > rollbackWithin*patience {
			t.Errorf("rolled back to %+v within %s, want %d within %s", got, took, want, rollbackWithin)
		}
	}
	back(v1, lowest)
	back(v2, highest)
	for _, c := range []struct {
		args   []string
		worker string
	}{
		{[]string{"rollback", "default"}, lowest},
		{[]string{"rollback", "default"}, highest},
		{[]string{"rollback", "default", "--to", fmt.Sprint(v1)}, lowest},
	} {
		if code, out, said := r.cli(append([]string{"policy"}, c.args...)...); code != 0 {
			t.Errorf("%v: exit code %d: %s%s", c.args, code, out, said)
		}
		r.chooses(c.worker)
	}

	r.must("PUT", "/v1/policies/fresh", scorer("module:lowest"), nil)
	refused := func(path, step string) {
		t.Helper()
		status, answer := r.raw("POST", path, nil)
		if e := refusedWith(t, path, status, answer); status != http.StatusConflict || e.Code != "conflict" || e.Details.Step != step {
			t.Errorf("%s: got %d %+v, want 409 at %s", path, status, e, step)
		}
	}
	refused("/v1/policies/fresh/rollback", "no_history")
	refused("/v1/policies/fresh/promote", "no_rollout")
	r.must("POST", "/v1/policies/fresh/activate", map[string]int{"revision": 1}, nil)
	refused("/v1/policies/fresh/rollback", "no_history")
	for _, verb := range []string{"rollback", "promote"} {
		code, _, said := r.cli("policy", verb, "fresh")
		if code != 1 || strings.Count(strings.TrimSpace(said), "\n") != 0 || !strings.Contains(said, "fresh") {
			t.Errorf("%s: exit code %d: %s", verb, code, said)
		}
	}
}

// A revision that has tripped is probed with what was asked last: when it
// answers that it decides again, on probation, where one fault is one too many,
// until an operator gives it another chance.
func TestO5_TrippedRevisionIsProbedAndEnabledAgain(t *testing.T) {
	t.Parallel() // it waits for most of its time
	r := startRouter(t, three(t)+"plugins:\n"+unhurried)
	revision := r.revise("traps", armed(Guest{}, Op(Unreachable)).Bytes())
	r.activate(revision)
	r.chooses(highest)
	tripped := func(faults int) {
		t.Helper()
		for i := range faults {
			if status, _, answer := r.complete(armedAt); status != http.StatusOK {
				t.Fatalf("bad request %d: status %d: %s", i, status, answer)
			}
		}
		if got := r.state(revision); got != "tripped" {
			t.Fatalf("the revision is %s after %d faults, want tripped", got, faults)
		}
	}
	tripped(3)
	began := time.Now()
	next := time.NewTicker(time.Second / 2)
	defer next.Stop()
	eventually(t, 2*time.Minute, func() error {
		<-next.C
		// Good requests, which the fallback decides and the probe asks for.
		if status, _, answer := r.complete(2); status != http.StatusOK {
			return fmt.Errorf("status %d: %s", status, answer)
		}
		if got := r.state(revision); got != "active" {
			return fmt.Errorf("the revision is %s", got)
		}
		return nil
	})
	t.Logf("decides again after %s", time.Since(began))
	r.chooses(highest)
	tripped(1)
	r.expectChanges("guard trip", "guard probe_ok", "guard trip")
	if code, out, said := r.cli("policy", "activate", "default", fmt.Sprint(revision)); code != 0 {
		t.Errorf("exit code %d: %s%s", code, out, said)
	}
	wellDecided(t, r, 3)
	r.expectChanges("api retry")
}

// expectChanges waits until the default policy's history ends so.
func (r *router) expectChanges(want ...string) {
	r.t.Helper()
	eventually(r.t, 10*time.Second, func() error {
		p := r.policy("default")
		if got := p.changes(len(want)); !slices.Equal(got, want) {
			return fmt.Errorf("the last changes are %q, want %q", got, want)
		}
		return nil
	})
}
