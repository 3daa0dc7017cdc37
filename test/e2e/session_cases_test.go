//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

const session = "x-routerd-session"

// chosenBy is who chose the worker of an answer.
func (r *router) chosenBy(a reply) string {
	r.t.Helper()
	return r.decision(a.header).Pick.By
}

func TestA1_OneSessionOnTwoModels(t *testing.T) {
	t.Parallel() // its times are long beside a crowd's delays
	var list []*desk
	for range 4 {
		list = append(list, openDesk(t))
	}
	r := startRouter(t, untold+desks(1, "m", list[:2]...)+desks(3, "n", list[2:]...)+"affinity: {ttl: 2s}\n")
	c := newCrowd(t, r)
	first := c.served(t, "hello", session, "s1")
	other := c.sendTo(t, "/v1/completions", map[string]any{"model": "n", "prompt": "hello"}, session, "s1").served(t)
	if other != "w3" && other != "w4" {
		t.Errorf("on n the session went to %s, want w3 or w4", other)
	}
	r.bound("m", 1, soon)
	r.bound("n", 1, soon)
	// m's binding is used until that of n has ended.
	eventually(t, soon, func() error {
		if got := c.served(t, "hello", session, "s1"); got != first {
			t.Fatalf("on m the session went to %s and then to %s", first, got)
		}
		if got := r.standing("n").Sessions.Bound; got != 0 {
			return fmt.Errorf("%d sessions are bound on n", got)
		}
		return nil
	})
	if got := r.standing("m").Sessions.Bound; got != 1 {
		t.Errorf("%d sessions are bound on m once that of n has ended, want 1", got)
	}
	a, err := c.complete(t.Context(), "hello", session, "s1")
	if err != nil {
		t.Fatal(err)
	}
	if got := servedBy(t, a); got != first || r.chosenBy(a) != "session" {
		t.Errorf("on m the session went to %s by %s, want %s by session", got, r.chosenBy(a), first)
	}
	r.quiet("m", "n")
}

func TestA2_FirstRequestsOfASessionAtOnce(t *testing.T) {
	const callers = 50
	var list []*desk
	for range 4 {
		list = append(list, openDesk(t))
	}
	r := startRouter(t, untold+desks(1, "m", list...))
	c := newCrowd(t, r)
	c.served(t, "hello") // connections, and the policy's first call
	for round := range 5 {
		replies, errs := make([]reply, callers), make([]error, callers)
		began := time.Now()
		together(callers, func(i int) {
			replies[i], errs[i] = c.complete(t.Context(), "hello", session, fmt.Sprint("new", round))
		})
		took := time.Since(began)
		workers := map[string]int{}
		for i, a := range replies {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			workers[servedBy(t, a)]++
		}
		if len(workers) != 1 {
			t.Errorf("round %d: the session's requests went to %v, want one worker", round, workers)
		}
		if got := r.standing("m").Sessions.Bound; got != round+1 {
			t.Errorf("round %d: %d sessions are bound, want %d", round, got, round+1)
		}
		t.Logf("round %d: all answered after %s", round, took)
		if took > time.Second*patience {
			t.Errorf("round %d: it took %s, want at most 1 s (asserted at %d times)", round, took, patience)
		}
	}
	m := r.metrics()
	waits, total := sum(m, "routerd_queue_wait_seconds_count"), sum(m, "routerd_queue_wait_seconds_sum")
	t.Logf("%v of %d requests waited for the first of their session, %.1f ms in all", waits, 5*callers, 1000*total)
	r.quiet("m")
}

func TestA3_WorkerOfASessionIsDeleted(t *testing.T) {
	r := startRouter(t, "models: {m: {block_size: 16, tokenize: \"off\"}}\n")
	for i := range 3 {
		name := fmt.Sprint("w", i+1)
		r.must("PUT", fmt.Sprint("/v1/workers/", i+1), map[string]any{"id": i + 1, "name": name, "url": openDesk(t).url, "model": "m"}, nil)
	}
	c := newCrowd(t, r)
	first := c.served(t, "hello", session, "s")
	for range 3 {
		if got := c.served(t, "hello", session, "s"); got != first {
			t.Errorf("the session went to %s and then to %s", first, got)
		}
	}
	r.must("DELETE", "/v1/workers/"+first, nil, nil)
	second := c.served(t, "hello", session, "s")
	if second == first {
		t.Errorf("the session went to %s, which is deleted", first)
	}
	for range 2 {
		if got := c.served(t, "hello", session, "s"); got != second {
			t.Errorf("bound anew to %s the session went to %s", second, got)
		}
	}
	r.bound("m", 1, soon)
	r.quiet("m")
}

func TestA4_WorkerOfANewSessionRefusesTheConnection(t *testing.T) {
	const dead = "  - {id: 1, name: w1, url: \"http://127.0.0.77:9\", model: m, no_health_check: true}\n"
	r := startRouter(t, untold+dead+desks(2, "m", openDesk(t)))
	r.prefersLowest()
	c := newCrowd(t, r)
	for i := range 3 {
		if got := c.served(t, "hello", session, "s"); got != "w2" {
			t.Errorf("request %d was served by %s, want w2", i, got)
		}
	}
	r.bound("m", 1, soon)
	if got := sum(r.metrics(), "routerd_frontend_retries_total"); got != 1 {
		t.Errorf("%v attempts were made again, want 1: w1 is not tried first the next time", got)
	}
	// Nor when w1 may be tried again by others.
	eventually(t, soon, func() error {
		if got := r.rank("m", "w1"); got.Lifecycle != "ready" {
			return fmt.Errorf("w1 is %s", got.Lifecycle)
		}
		c.served(t, "hello")
		if got := sum(r.metrics(), "routerd_frontend_retries_total"); got != 2 {
			return fmt.Errorf("%v retries, want a second one by a request without session", got)
		}
		return nil
	})
	if a, err := c.complete(t.Context(), "hello", session, "s"); err != nil || servedBy(t, a) != "w2" || r.chosenBy(a) != "session" {
		t.Errorf("the session's next request: %v %v", a, err)
	}
	r.quiet("m")
}

func TestA5_StreamKeepsItsSession(t *testing.T) {
	t.Parallel() // its times are long beside a crowd's delays
	list := []*desk{startDesk(t), startDesk(t)}
	r := startRouter(t, untold+desks(1, "m", list...)+"affinity: {ttl: 1s}\n")
	c := newCrowd(t, r)
	resp, err := c.begin(t.Context(), "/v1/completions", map[string]any{"model": "m", "prompt": "long", "stream": true}, session, "s")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	first := resp.Header.Get("x-routerd-worker")
	<-time.After(2500 * time.Millisecond)
	a, err := c.complete(t.Context(), "now", session, "s")
	if err != nil {
		t.Fatal(err)
	}
	if got := servedBy(t, a); got != first || r.chosenBy(a) != "session" {
		t.Errorf("2.5 s into the stream the session went to %s by %s, want %s by session", got, r.chosenBy(a), first)
	}
	if got := r.standing("m").Sessions; got.Bound != 1 || got.Leases != 1 {
		t.Errorf("2.5 s into the stream: %+v, want one bound and one lease", got)
	}
	<-time.After(500 * time.Millisecond)
	for _, d := range list {
		d.open()
	}
	r.quiet("m")
	ended := time.Now()
	r.bound("m", 0, soon)
	t.Logf("the binding ended %s after the stream (its TTL is 1 s)", time.Since(ended))
	if got := time.Since(ended); got < 900*time.Millisecond {
		t.Errorf("the binding ended %s after the stream, want 1 s", got)
	}
	if a, err = c.complete(t.Context(), "now", session, "s"); err != nil {
		t.Fatal(err)
	}
	if servedBy(t, a); r.chosenBy(a) != "policy" {
		t.Errorf("after the TTL the session's worker was chosen by %s, want the policy", r.chosenBy(a))
	}
	if got := sum(r.metrics(), "routerd_affinity_expired_total"); got != 1 {
		t.Errorf("%v sessions ended, want 1", got)
	}
	r.quiet("m")
}

func TestA6_TableOfSessionsIsFull(t *testing.T) {
	t.Parallel() // its times are long beside a crowd's delays
	const entries = 20
	list := []*desk{startDesk(t), startDesk(t)}
	r := startRouter(t, untold+desks(1, "m", list...)+fmt.Sprintf("affinity: {ttl: 1s, entries: %d}\n", entries))
	c := newCrowd(t, r)
	var live []*pending
	for i := range entries {
		live = append(live, c.send(t, "long", session, fmt.Sprint("s", i)))
	}
	r.bound("m", entries, soon)
	bound := map[int]string{}
	for i := range entries {
		bound[i] = c.served(t, "now", session, fmt.Sprint("s", i))
	}
	a, err := c.complete(t.Context(), "now", session, "late")
	if err != nil {
		t.Fatal(err)
	}
	if servedBy(t, a); r.chosenBy(a) != "policy" {
		t.Errorf("the session too many was decided by %s, want the policy", r.chosenBy(a))
	}
	if got := sum(r.metrics(), "routerd_affinity_full_total"); got != 1 {
		t.Errorf("%v requests found the table full, want 1", got)
	}
	r.bound("m", entries, soon)

	live[0].gone()
	r.bound("m", entries-1, soon)
	where := c.served(t, "now", session, "late")
	r.bound("m", entries, soon)
	if got := c.served(t, "now", session, "late"); got != where {
		t.Errorf("bound at last, the session went to %s and then to %s", where, got)
	}
	for i := 1; i < entries; i++ {
		a, err := c.complete(t.Context(), "now", session, fmt.Sprint("s", i))
		if err != nil {
			t.Fatal(err)
		}
		if got := servedBy(t, a); got != bound[i] || r.chosenBy(a) != "session" {
			t.Errorf("s%d went to %s by %s, want %s as bound", i, got, r.chosenBy(a), bound[i])
		}
	}
	for _, d := range list {
		d.open()
	}
	for _, p := range live[1:] {
		p.served(t)
	}
	r.quiet("m")
}

func TestA7_StructuredSessionIsBeforeTheFlatOne(t *testing.T) {
	for name, structured := range map[string]string{"ours": session, "an agent's": "x-claude-code-session-id"} {
		t.Run(name, func(t *testing.T) {
			r := startRouter(t, untold+desks(1, "m", openDesk(t), openDesk(t), openDesk(t)))
			c := newCrowd(t, r)
			first := c.served(t, "hello", structured, "sA", "x-session-id", "sB")
			r.bound("m", 1, soon)
			for _, header := range [][]string{{structured, "sA"}, {structured, "sA", "x-session-id", "sC"}, {"x-session-id", "sA"}} {
				a, err := c.complete(t.Context(), "hello", header...)
				if err != nil {
					t.Fatal(err)
				}
				if got := servedBy(t, a); got != first || r.chosenBy(a) != "session" {
					t.Errorf("%v went to %s by %s, want %s by session", header, got, r.chosenBy(a), first)
				}
			}
			r.bound("m", 1, soon)
			a, err := c.complete(t.Context(), "hello", "x-session-id", "sB")
			if err != nil || a.status != http.StatusOK || r.chosenBy(a) != "policy" {
				t.Errorf("sB alone: %d by %s (%v), want the policy's choice: it had no binding", a.status, r.chosenBy(a), err)
			}
			r.bound("m", 2, soon)
			r.quiet("m")
		})
	}
}
