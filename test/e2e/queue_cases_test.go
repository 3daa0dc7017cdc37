//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// one request at a time on each worker; others wait.
const oneAtATime = "queue: {classes: {default: {busy: {active_requests: 1}, limits: {requests: %d}, timeout: %s}}}\n"

// putDesk adds a desk as worker w<id> of model m by the admin API.
func (r *router) putDesk(id int, d *desk) {
	r.t.Helper()
	r.must("PUT", fmt.Sprint("/v1/workers/", id), map[string]any{"id": id, "name": fmt.Sprint("w", id), "url": d.url, "model": "m"}, nil)
}

const noWorkers = "models: {m: {block_size: 16, tokenize: \"off\"}}\n"

func TestU1_QueueIsFullAndPoolIsEmpty(t *testing.T) {
	const limit = 10
	d := startDesk(t)
	r := startRouter(t, noWorkers+fmt.Sprintf(oneAtATime, limit, "1m"))
	r.putDesk(1, d)
	c := newCrowd(t, r)
	running := c.send(t, "first")
	d.arrived(t, 1)
	var waiting []*pending
	for range limit {
		waiting = append(waiting, c.send(t, "waits"))
	}
	r.waits(limit, soon)
	a, err := c.complete(t.Context(), "eleventh")
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "the 11th", a, http.StatusTooManyRequests, "overloaded", "queue_full")
	r.waits(limit, soon)

	r.must("DELETE", "/v1/workers/1", nil, nil)
	for _, p := range waiting {
		refused(t, "one that waited for the last worker", p.answer(t), http.StatusServiceUnavailable, "no_workers", "")
	}
	if a, err = c.complete(t.Context(), "nobody"); err != nil {
		t.Fatal(err)
	}
	refused(t, "without workers", a, http.StatusServiceUnavailable, "no_workers", "")
	d.open()
	if got := running.served(t); got != "w1" {
		t.Errorf("what the removed worker was at work on was served by %q", got)
	}
	if !slices.Equal(d.prompts(), []string{"first"}) {
		t.Errorf("the worker got %v, want only the first", d.prompts())
	}
	r.quiet("m")
}

func TestU2_WaitersThatLeave(t *testing.T) {
	const queued, leaving, size = 100, 60, 16
	d := startDesk(t)
	r := startRouter(t, untold+desks(1, "m", d)+fmt.Sprintf(oneAtATime, 256, "1m"))
	c := newCrowd(t, r)
	running := c.send(t, tokens(1, size))
	d.arrived(t, 1)
	var stay, leave []*pending
	for i := range queued {
		p := c.send(t, tokens(1000*(i+1), size))
		if i%5 < 3 {
			leave = append(leave, p)
		} else {
			stay = append(stay, p)
		}
	}
	r.waits(queued, soon)
	if got := sum(r.metrics(), "routerd_queue_tokens"); got != queued*size {
		t.Errorf("%v tokens wait, want %d", got, queued*size)
	}
	for _, p := range leave {
		p.leave()
	}
	began := time.Now()
	r.waits(queued-leaving, 100*time.Millisecond*patience)
	t.Logf("the depth was %d after %s (stated: 100 ms)", queued-leaving, time.Since(began))
	m := r.metrics()
	if depth, total := sum(m, "routerd_queue_requests"), sum(m, "routerd_queue_tokens"); depth != queued-leaving || total != (queued-leaving)*size {
		t.Errorf("the metrics show %v requests of %v tokens, want %d of %d", depth, total, queued-leaving, (queued-leaving)*size)
	}
	d.open()
	running.served(t)
	for _, p := range stay {
		p.served(t)
	}
	for _, p := range leave {
		p.gone()
	}
	if got := len(d.prompts()); got != 1+queued-leaving {
		t.Errorf("%d requests came to the worker, want %d", got, 1+queued-leaving)
	}
	r.quiet("m")
}

// A worker becomes free at the moment when the one that waits for it has waited
// long enough.
func TestU3_CapacityIsThereWhenTheTimeIsUp(t *testing.T) {
	const limit = 500 * time.Millisecond
	d := startDesk(t)
	r := startRouter(t, untold+desks(1, "m", d)+fmt.Sprintf(oneAtATime, 10, limit))
	c := newCrowd(t, r)
	served, late := 0, time.Duration(0)
	for round := range u3Rounds {
		running := c.send(t, fmt.Sprint("first of ", round))
		eventually(t, soon, func() error { return hasSeen(d, fmt.Sprint("first of ", round)) })
		began := time.Now()
		waits := c.send(t, fmt.Sprint("second of ", round))
		// From 2 ms before to 2 ms after, in steps.
		<-time.After(time.Until(began.Add(limit + time.Duration(round%9-4)*time.Millisecond/2)))
		d.let(1)
		running.served(t)
		eventually(t, soon, func() error { // has it been sent, or refused?
			select {
			case <-waits.done:
				return nil
			default:
				return hasSeen(d, fmt.Sprint("second of ", round))
			}
		})
		sent := hasSeen(d, fmt.Sprint("second of ", round)) == nil
		if sent {
			served++
			d.let(1)
			waits.served(t)
			continue
		}
		refused(t, fmt.Sprint("round ", round), waits.answer(t), http.StatusTooManyRequests, "overloaded", "queue_timeout")
		late = max(late, waits.took-limit)
		if waits.took < limit-time.Millisecond || waits.took > limit+100*time.Millisecond*patience {
			t.Errorf("round %d: refused after %s, want %s to 100 ms more (asserted at %d times)", round, waits.took, limit, patience)
		}
		if hasSeen(d, fmt.Sprint("second of ", round)) == nil {
			t.Errorf("round %d: refused and sent to the worker", round)
		}
	}
	r.quiet("m")
	if got := len(d.prompts()); got != u3Rounds+served {
		t.Errorf("%d requests came to the worker, want %d and %d that were served in time", got, u3Rounds, served)
	}
	t.Logf("%d of %d were served in time, the others refused at most %s after the limit (stated: 100 ms)", served, u3Rounds, late)
}

// hasSeen tells whether a prompt has come to the desk.
func hasSeen(d *desk, prompt string) error {
	if !slices.Contains(d.prompts(), prompt) {
		return fmt.Errorf("%q is not at the worker", prompt)
	}
	return nil
}

func TestU4_ClassesShareByWeight(t *testing.T) {
	const dispatches, callersEach = 2000, 40
	d := startDesk(t)
	r := startRouter(t, untold+desks(1, "m", d)+`queue:
  classes:
    high: {weight: 9, busy: {active_requests: 2}, timeout: 2m}
    low: {weight: 1, busy: {active_requests: 2}, timeout: 2m}
`)
	c := newCrowd(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 2 * callersEach {
		class := []string{"high", "low"}[i%2]
		wg.Go(func() {
			for ctx.Err() == nil {
				a, err := c.complete(ctx, class, "x-routerd-class", class)
				if ctx.Err() == nil && (err != nil || a.status != http.StatusOK) {
					t.Errorf("a request of class %s: status %d %v", class, a.status, err)
					return
				}
			}
		})
	}
	r.waits(2*callersEach-2, soon)
	began := len(d.prompts())
	d.open()
	eventually(t, time.Minute, func() error {
		if got := len(d.prompts()); got < began+dispatches {
			return fmt.Errorf("%d dispatches of %d", got-began, dispatches)
		}
		return nil
	})
	both := map[string]int{}
	for _, class := range r.standing("m").Queue {
		both[class.Class] = class.Requests
	}
	cancel()
	wg.Wait()
	low := 0
	for _, class := range d.prompts()[began : began+dispatches] {
		if class == "low" {
			low++
		}
	}
	t.Logf("%d of %d went to the class of weight 1; at the end %v waited", low, dispatches, both)
	if low < dispatches*7/100 || low > dispatches*13/100 {
		t.Errorf("the class of weight 1 beside 9 got %d of %d, want 7 to 13 %%", low, dispatches)
	}
	r.quiet("m")
}

func TestU5_NewWorkerTakesWhoWaits(t *testing.T) {
	const queued = 20
	full, fresh := startDesk(t), startDesk(t)
	r := startRouter(t, noWorkers+fmt.Sprintf(oneAtATime, 256, "1m"))
	r.putDesk(1, full)
	c := newCrowd(t, r)
	all := []*pending{c.send(t, "first")}
	full.arrived(t, 1)
	for range queued {
		all = append(all, c.send(t, "waits"))
	}
	r.waits(queued, soon)
	r.putDesk(2, fresh)
	began := time.Now()
	eventually(t, soon, func() error { return hasSeen(fresh, "waits") })
	took := time.Since(began)
	t.Logf("the new worker had its first request %s after it was registered (stated: 200 ms)", took)
	if took > 200*time.Millisecond*patience {
		t.Errorf("the first request came %s after the registration, want at most 200 ms (asserted at %d times)", took, patience)
	}
	r.waits(queued-1, soon)
	fresh.open()
	for _, p := range all[1:] {
		if got := p.served(t); got != "w2" {
			t.Errorf("one that waited was served by %s, want w2", got)
		}
	}
	full.open()
	all[0].served(t)
	r.quiet("m")
}

func TestD2_ClientLeavesTheQueue(t *testing.T) {
	d := startDesk(t)
	r := startRouter(t, untold+desks(1, "m", d)+fmt.Sprintf(oneAtATime, 256, "1m"))
	c := newCrowd(t, r)
	running := c.send(t, "first")
	d.arrived(t, 1)
	second := c.send(t, "second", session, "s")
	r.waits(1, soon)
	<-time.After(500 * time.Millisecond)
	second.leave()
	began := time.Now()
	r.waits(0, time.Second*patience)
	t.Logf("it had left the queue after %s (stated: 1 s)", time.Since(began))
	if got := r.standing("m").Sessions; got.Bound+got.Initialising+got.Leases != 0 {
		t.Errorf("of the one that left there is %+v, want nothing", got)
	}
	d.open()
	running.served(t)
	c.served(t, "third")
	if got := strings.Join(d.prompts(), " "); got != "first third" {
		t.Errorf("the worker got %q, want first and third", got)
	}
	if got := sum(r.metrics(), "routerd_frontend_client_cancelled_total"); got != 1 {
		t.Errorf("%v requests were cancelled by clients, want 1", got)
	}
	r.quiet("m")
}

// A reload changes who may go, at once for those that wait too; what only a
// restart can change is refused by name and changes nothing.
func TestReloadOfQueueAndSessions(t *testing.T) {
	d := startDesk(t)
	base := untold + desks(1, "m", d)
	r := startRouter(t, base+fmt.Sprintf(oneAtATime, 1, "1m"))
	c := newCrowd(t, r)
	all := []*pending{c.send(t, "first", session, "s")}
	d.arrived(t, 1)
	all = append(all, c.send(t, "second", session, "s"))
	r.waits(1, soon)
	if a, err := c.complete(t.Context(), "third"); err != nil || a.status != http.StatusTooManyRequests {
		t.Fatalf("status %d %v, want 429: the queue is full", a.status, err)
	}

	r.rewrite(base + fmt.Sprintf(oneAtATime, 2, "1m") + "affinity: {ttl: 1h, entries: 7}\n")
	status, answer := r.raw("POST", "/v1/config/reload", nil)
	e := refusedWith(t, "a change of affinity", status, answer)
	if e.Code != "conflict" || e.Details.Step != "restart" || !strings.Contains(e.Message+e.Details.Item, "affinity.ttl") || !strings.Contains(e.Message+e.Details.Item, "affinity.entries") {
		t.Errorf("got %s, want a conflict that names affinity.ttl and affinity.entries", answer)
	}
	if a, err := c.complete(t.Context(), "third"); err != nil || a.status != http.StatusTooManyRequests {
		t.Fatalf("status %d %v after the refused reload, want 429 as before", a.status, err)
	}

	r.rewrite(base + fmt.Sprintf(oneAtATime, 2, "1m"))
	r.must("POST", "/v1/config/reload", nil, nil)
	all = append(all, c.send(t, "third"))
	r.waits(2, soon)

	r.rewrite(base + "queue: {classes: {default: {busy: {active_requests: 3}}}}\n")
	r.must("POST", "/v1/config/reload", nil, nil)
	d.arrived(t, 3)
	r.waits(0, soon)
	r.bound("m", 1, soon)
	d.open()
	for _, p := range all {
		p.served(t)
	}
	a, err := c.complete(t.Context(), "fourth", session, "s")
	if err != nil {
		t.Fatal(err)
	}
	if servedBy(t, a); r.chosenBy(a) != "session" {
		t.Errorf("after the reloads the session's worker was chosen by %s, want its binding", r.chosenBy(a))
	}
	r.quiet("m")
}

// A session's first request waits in the queue, and 49 wait behind it; half of
// them leave, the first one too.
func TestWaitersBehindAQueuedFirstRequest(t *testing.T) {
	const callers, leaving = 50, 25
	d := startDesk(t)
	r := startRouter(t, untold+desks(1, "m", d)+fmt.Sprintf(oneAtATime, 256, "1m"))
	c := newCrowd(t, r)
	running := c.send(t, "first")
	d.arrived(t, 1)
	all := []*pending{c.send(t, "initialises", session, "s")}
	r.waits(1, soon)
	for range callers - 1 {
		all = append(all, c.send(t, "follows", session, "s"))
	}
	r.waits(callers, soon)
	for _, p := range all[:leaving] {
		p.leave()
	}
	began := time.Now()
	r.waits(callers-leaving, 50*time.Millisecond*patience)
	t.Logf("they were gone after %s (stated: 50 ms)", time.Since(began))
	d.open()
	running.served(t)
	for _, p := range all[leaving:] {
		p.served(t)
	}
	if got := len(d.prompts()); got != 1+callers-leaving {
		t.Errorf("%d requests came to the worker, want %d", got, 1+callers-leaving)
	}
	r.bound("m", 1, soon)
	r.quiet("m")
}
