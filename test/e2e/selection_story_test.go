//go:build e2e

package e2e_test

import (
	"bufio"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/routerd/routerd/sim"
)

// plane is a data plane: it books at the service, forwards through the frontend
// with a pin, tells how the request goes on, and frees.
type plane struct {
	*service
	clients *crowd
	engines map[uint64]*sim.Engine

	mu     sync.Mutex // guards home and all below
	home   map[string]uint64
	served int
	used   map[string]int // by worker and rank
}

const planeSessions = 6

// startPlane has three engines of two ranks, that are not yet workers.
func startPlane(t *testing.T) *plane {
	t.Helper()
	p := &plane{service: startService(t, "models: {m: {block_size: 16}}\n"), engines: map[uint64]*sim.Engine{}, home: map[string]uint64{}, used: map[string]int{}}
	p.clients = newCrowd(t, p.router)
	for id := range uint64(3) {
		p.starts(t, id+1)
	}
	return p
}

// joins puts a worker, whole.
func (p *plane) joins(t *testing.T, id uint64, taints ...string) {
	t.Helper()
	e := p.engines[id]
	a := p.says(t, http.StatusCreated, "POST", "/workers", map[string]any{
		"worker_id": id, "model_name": "m", "endpoint": e.URL(), "block_size": 16, "data_parallel_size": 2,
		"kv_events_endpoints": e.EventEndpoints(), "max_num_batched_tokens": 8192, "taints": append([]string{}, taints...),
	})
	if got := read[struct{ Lifecycle string }](t, a).Lifecycle; got != "schedulable" {
		t.Fatalf("worker %d is %s: %s", id, got, a.body)
	}
}

func (p *plane) leaves(t *testing.T, id uint64) {
	t.Helper()
	p.says(t, http.StatusOK, "DELETE", fmt.Sprint("/workers/", id), nil)
}

// book books completion n of a session, in one step or in two.
func (p *plane) book(t *testing.T, n int, body map[string]any) selected {
	t.Helper()
	if n%2 == 0 {
		return p.books(t, body)
	}
	body["selection_id"] = fmt.Sprint("turn ", n)
	s := read[selected](t, p.says(t, http.StatusOK, "POST", "/select", body))
	booked := read[selected](t, p.says(t, http.StatusCreated, "POST", "/reservations", map[string]any{
		"selection_id": s.ID, "model_name": "m",
	}))
	if booked.ID != s.ID || booked.Worker != s.Worker || booked.Rank != s.Rank || booked.Endpoint != s.Endpoint {
		t.Errorf("booked %+v, want what was selected, %+v", booked, s)
	}
	return booked
}

// completes makes completion n.
func (p *plane) completes(t *testing.T, n int) {
	t.Helper()
	name := fmt.Sprint("s", n%planeSessions)
	prompt := tokens(10_000*(n%planeSessions+1), 40+8*n)
	to := p.book(t, n, wants(prompt, "session_id", name))
	booking := "/reservations/" + strings.ReplaceAll(to.ID, " ", "%20")

	resp, err := p.clients.begin(t.Context(), "/v1/completions", map[string]any{"model": "m", "prompt": prompt, "max_tokens": 8, "stream": true}, "x-routerd-pin", to.pin())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	worker, rank := resp.Header.Get("x-routerd-worker"), resp.Header.Get("x-routerd-rank")
	if resp.StatusCode != http.StatusOK || worker != fmt.Sprint(to.Worker) || rank != fmt.Sprint(to.Rank) {
		t.Errorf("completion %d: status %d of worker %q rank %q, want that of %+v", n, resp.StatusCode, worker, rank, to)
	}
	chunks := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "data: {") {
			continue
		}
		switch chunks++; {
		case chunks == 1:
			p.says(t, http.StatusOK, "POST", booking+"/prefill_complete", nil)
		case chunks%4 == 0:
			p.says(t, http.StatusOK, "POST", booking+"/output_block", map[string]any{"decay_fraction": 1 / float64(chunks)})
		}
	}
	if chunks < 2 {
		t.Errorf("completion %d: %d chunks", n, chunks)
	}
	p.says(t, http.StatusOK, "DELETE", booking, nil)

	p.mu.Lock()
	defer p.mu.Unlock()
	p.served++
	p.used[to.pin()]++
	if old, ok := p.home[name]; ok && old != to.Worker {
		t.Errorf("completion %d: session %s went to %d and then to %d", n, name, old, to.Worker)
	}
	p.home[name] = to.Worker
}

// round makes the completions from first to last, as many at a time as there are
// sessions.
func (p *plane) round(t *testing.T, first, last int) {
	t.Helper()
	for at := first; at <= last; at += planeSessions {
		together(min(planeSessions, last-at+1), func(i int) { p.completes(t, at+i) })
	}
	if t.Failed() {
		t.FailNow()
	}
}

// A data plane makes 34 completions while workers change, leave, are all gone, come
// back, and one of their engines dies. The serving worker is always the selected one, and nothing stays booked.
func TestADataPlaneBooksForwardsAndFrees(t *testing.T) {
	p := startPlane(t)
	for id := range p.engines {
		p.joins(t, id)
	}
	p.round(t, 0, 11)

	// A refresh of what is known of the workers, in the middle of a booking.
	held := p.books(t, wants(tokens(1, 64)))
	for id := range p.engines {
		p.joins(t, id, "refreshed")
	}
	if got := p.active(t); got != 1 {
		t.Errorf("%d bookings after the refresh, want the one that was held", got)
	}
	p.frees(t, held.ID)
	p.round(t, 12, 17)

	// A worker is withdrawn between selection and booking; its sessions move on.
	gone := p.home["s0"]
	p.says(t, http.StatusOK, "POST", "/select", wants(tokens(1, 64), "selection_id", "late", "session_id", "s0"))
	p.leaves(t, gone)
	p.says(t, http.StatusNotFound, "POST", "/reservations", map[string]any{"selection_id": "late", "model_name": "m"})
	again := read[selected](t, p.says(t, http.StatusOK, "POST", "/select", wants(tokens(1, 64), "selection_id", "late", "session_id", "s0")))
	if again.Worker == gone {
		t.Errorf("selected %d again, which was withdrawn", gone)
	}
	p.says(t, http.StatusCreated, "POST", "/reservations", map[string]any{"selection_id": "late", "model_name": "m"})
	p.frees(t, "late")
	moved := 0
	for name, at := range p.home {
		if at == gone {
			delete(p.home, name)
			moved++
		}
	}
	p.round(t, 18, 23)
	for name, at := range p.home {
		if at == gone {
			t.Errorf("session %s is at the worker that was withdrawn", name)
		}
	}

	// No worker at all, here and there; then all again.
	for id := range p.engines {
		if id != gone {
			p.leaves(t, id)
		}
	}
	p.says(t, http.StatusServiceUnavailable, "POST", "/select_and_reserve", wants(tokens(1, 16), "session_id", "s1"))
	p.says(t, http.StatusServiceUnavailable, "GET", "/ready", nil)
	if a, err := p.clients.complete(t.Context(), tokens(1, 16)); err != nil || a.status != http.StatusServiceUnavailable {
		t.Errorf("the frontend without workers: %d %v %s", a.status, err, a.body)
	}
	clear(p.home)
	for id := range p.engines {
		p.joins(t, id)
	}
	p.says(t, http.StatusOK, "GET", "/ready", nil)
	p.round(t, 24, 27)

	// An engine dies under a booking; its sessions go elsewhere, until one stands there again.
	dead := p.dies(t, "s0")
	maps.DeleteFunc(p.home, func(_ string, at uint64) bool { return at == dead })
	p.round(t, 28, 30)
	for name, at := range p.home {
		if at == dead {
			t.Errorf("session %s is at the worker whose engine is gone", name)
		}
	}
	p.leaves(t, dead)
	p.starts(t, dead)
	p.joins(t, dead)
	p.round(t, 31, 33)

	if p.served != 34 {
		t.Errorf("%d completions, want 34", p.served)
	}
	if len(p.used) < 3 || moved == 0 {
		t.Errorf("%d ranks were used and %d sessions moved: nothing was to choose", len(p.used), moved)
	}
	t.Logf("34 completions by rank: %v; %d sessions moved at the withdrawal", p.used, moved)
	p.quiet("m")
	p.unused(t)
	for id, e := range p.engines {
		var stats struct {
			Cancelled int `json:"cancelled"`
		}
		if engineJSON(t, e, "GET", "/sim/stats", nil, &stats); stats.Cancelled != 0 {
			t.Errorf("engine %d saw %d requests cancelled, want none", id, stats.Cancelled)
		}
	}
}

// A session that one surface bound is honoured by the other, whatever the policy
// would choose.
func TestASessionBelongsToBothSurfaces(t *testing.T) {
	s := startService(t, untold+desks(1, "m", openDesk(t), openDesk(t), openDesk(t)))
	s.prefersLowest()
	c := newCrowd(t, s.router)
	if got := s.books(t, wants(tokens(1, 16), "selection_id", "here", "session_id", "bound here", "allowed_worker_ids", []int{2})); got.Worker != 2 {
		t.Fatalf("bound to %d, want 2", got.Worker)
	}
	s.frees(t, "here")
	if got := c.served(t, tokens(1, 16), session, "bound there", "x-routerd-allow", "w3"); got != "w3" {
		t.Fatalf("bound to %s, want w3", got)
	}
	for _, c := range []struct {
		session string
		worker  uint64
	}{{"bound here", 2}, {"bound there", 3}, {"", 1}} {
		body := wants(tokens(1, 16), "selection_id", "again")
		if c.session != "" {
			body["session_id"] = c.session
		}
		if got := s.books(t, body); got.Worker != c.worker {
			t.Errorf("the service selected %d for session %q, want %d", got.Worker, c.session, c.worker)
		}
		s.frees(t, "again")
	}
	if got := c.served(t, tokens(1, 16), session, "bound here"); got != "w2" {
		t.Errorf("the frontend went to %s for the session that was bound here, want w2", got)
	}
	if got := c.served(t, tokens(1, 16)); got != "w1" {
		t.Errorf("without a session the frontend went to %s, want w1", got)
	}

	// Where its worker may not serve, both refuse, and neither moves the session.
	refused := s.says(t, http.StatusBadRequest, "POST", "/select_and_reserve", wants(tokens(1, 16), "session_id", "bound there", "allowed_worker_ids", []int{1}))
	refusesWith(t, refused, http.StatusBadRequest)
	if a, err := c.complete(t.Context(), tokens(1, 16), session, "bound here", "x-routerd-allow", "w1"); err != nil || a.status != http.StatusBadRequest {
		t.Errorf("the frontend said %d %v: %s", a.status, err, a.body)
	}

	// A session that moves between selection and booking: the booking is refused.
	if got := read[selected](t, s.says(t, http.StatusOK, "POST", "/select", wants(tokens(1, 16), "selection_id", "late", "session_id", "moves"))); got.Worker != 1 {
		t.Errorf("selected %d, want 1", got.Worker)
	}
	if got := c.served(t, tokens(1, 16), session, "moves", "x-routerd-allow", "w2"); got != "w2" {
		t.Errorf("the frontend went to %s, want w2", got)
	}
	refusesWith(t, s.says(t, http.StatusBadRequest, "POST", "/reservations", map[string]any{"selection_id": "late", "model_name": "m"}), http.StatusBadRequest)
	if got := s.books(t, wants(tokens(1, 16), "selection_id", "late", "session_id", "moves")); got.Worker != 2 {
		t.Errorf("selected %d, want 2, where the session is bound", got.Worker)
	}
	s.frees(t, "late")
	s.bound("m", 3, soon)
	s.idle("m", soon)
	s.unused(t)
}
