package frontend_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// sticky keeps sessions with their workers; the policy by itself would move
// them at each request.
func sticky(s *setup) {
	s.core.Affinity.TTL = time.Minute
	s.policy = scoring("builtin:round-robin")
}

// engines joins simulated engines w1, w2, … that take their time.
func (w *world) engines(t testing.TB, n int) map[string]*sim.Engine {
	t.Helper()
	out := map[string]*sim.Engine{}
	for i := range n {
		name := fmt.Sprintf("w%d", i+1)
		out[name] = simtest.Start(t, func(c *sim.Config) {
			c.Name, c.Model, c.Events, c.AnswerTokens, c.DecodePerToken = name, "m", false, 6, time.Millisecond
		})
		w.join(t, name, out[name].URL())
	}
	return out
}

// abort opens a long stream and leaves it after two events.
func (w *world) abort(t testing.TB, headers ...string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+w.addr+chatPath,
		strings.NewReader(`{"model":"m","stream":true,"max_tokens":20000,"ignore_eos":true,"messages":[{"role":"user","content":"go on"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	br := bufio.NewReader(resp.Body)
	for range 4 {
		if line, err := br.ReadString('\n'); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("got %d %q, %v", resp.StatusCode, line, err)
		}
	}
	if n := w.active(resp.Header.Get("X-Routerd-Worker")); n != 1 {
		t.Errorf("%d active requests while the stream is held, want 1", n)
	}
}

// served is who answered, by the router's word; the engine's own must agree.
func served(t *testing.T, a answer) string {
	t.Helper()
	name := a.header.Get("X-Routerd-Worker")
	if a.status != http.StatusOK || name == "" || a.header.Get("X-Sim-Engine") != name {
		t.Errorf("got %d from %q, engine %q: %.200s", a.status, name, a.header.Get("X-Sim-Engine"), a.body)
	}
	return name
}

func TestSessionsStayOverUnaryAndStreamedAnswersAndACancelledOne(t *testing.T) {
	const sessions = 16
	w := start(t, sticky)
	w.engines(t, 4)
	c := client(t)
	ask := func(session int, streamed bool, round int) string {
		body := fmt.Sprintf(`{"model":"m","stream":%t,"messages":[{"role":"user","content":"session %d round %d"}]}`, streamed, session, round)
		a, err := w.try(t, c, "POST", chatPath, body, "x-routerd-session", fmt.Sprint("s", session))
		if err != nil {
			t.Error(err)
		}
		if streamed != strings.HasSuffix(a.body, "data: [DONE]\n\n") {
			t.Errorf("session %d, round %d: got %.200q", session, round, a.body)
		}
		return served(t, a)
	}
	var bound [sessions]string
	for round, streamed := range []bool{false, true, false} {
		var all sync.WaitGroup
		for s := range sessions {
			all.Go(func() {
				worker := ask(s, streamed, round)
				if round == 0 {
					bound[s] = worker
				} else if worker != bound[s] {
					t.Errorf("session %d, round %d: served by %s, is bound to %s", s, round, worker, bound[s])
				}
			})
		}
		all.Wait()
	}
	used := map[string]int{}
	for _, name := range bound {
		used[name]++
	}
	if len(used) != 4 {
		t.Errorf("16 sessions are on %v, want all four workers", used)
	}

	// A stream that its client leaves ends its lease, not the binding.
	w.abort(t, "x-routerd-session", "s0")
	if got := ask(0, false, 3); got != bound[0] {
		t.Errorf("after the cancelled stream: served by %s, is bound to %s", got, bound[0])
	}
	if d := w.lastDecision(t); d.Pick.By != policy.BySession {
		t.Errorf("picked by %q", d.Pick.By)
	}
	eventually(t, "release of all bookings", func() bool { return w.active("") == 0 && w.core.Reservations() == 0 })
	want := map[string]int{"completed": 3*sessions + 1, "cancelled": 1}
	if diff := cmp.Diff(want, w.released.kinds()); diff != "" {
		t.Errorf("bookings ended (-want +got):\n%s", diff)
	}
}

func TestA2_SimultaneousFirstRequestsOfASessionMeetAtOneWorker(t *testing.T) {
	w := start(t, sticky)
	w.engines(t, 4)
	c := client(t)
	var mu sync.Mutex
	by := map[string]int{}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			a, err := w.try(t, c, "POST", chatPath, chatBody, "x-routerd-session", "new")
			if err != nil {
				t.Error(err)
				return
			}
			name := served(t, a)
			mu.Lock()
			defer mu.Unlock()
			by[name]++
		})
	}
	all.Wait()
	if len(by) != 1 {
		t.Errorf("served by %v, want one worker", by)
	}
}

func TestA3_ASessionMovesInTheRequestThatFindsItsWorkerGone(t *testing.T) {
	w := start(t, sticky)
	w.engines(t, 3)
	first := served(t, w.chat(t, "x-routerd-session", "s"))
	if err := w.core.Commit(core.Change{Removals: []fleet.WorkerID{fleet.IDFromName(first)}}); err != nil {
		t.Fatal(err)
	}
	second := served(t, w.chat(t, "x-routerd-session", "s"))
	if second == first {
		t.Errorf("served by %s, which has left", first)
	}
	for range 2 {
		if got := served(t, w.chat(t, "x-routerd-session", "s")); got != second {
			t.Errorf("served by %s, is bound to %s", got, second)
		}
	}
}

func TestA4_ASessionIsBoundToWhoServedNotToWhoRefused(t *testing.T) {
	w := start(t, sticky)
	w.engines(t, 1)
	w.join(t, "gone", "http://127.0.0.77:9")
	for i := 0; w.metric(t, "routerd_frontend_retries_total") == 0; i++ {
		if i == 64 {
			t.Fatal("the worker that is gone was never chosen")
		}
		if got := served(t, w.chat(t, "x-routerd-session", fmt.Sprint("s", i))); got != "w1" {
			t.Errorf("served by %s", got)
		}
		if w.metric(t, "routerd_frontend_retries_total") == 0 {
			continue
		}
		w.core.Reached(fleet.IDFromName("gone")) // so that nothing but the binding steers
		for range 4 {
			served(t, w.chat(t, "x-routerd-session", fmt.Sprint("s", i)))
		}
	}
	if n := w.metric(t, "routerd_frontend_retries_total"); n != 1 {
		t.Errorf("%v further attempts, want the session's first one alone", n)
	}
}

func TestA7_TheStructuredSessionIsBoundTheFlatOneIsNot(t *testing.T) {
	w := start(t, sticky)
	w.engines(t, 2)
	by := func(headers ...string) policy.By {
		served(t, w.chat(t, headers...))
		return w.lastDecision(t).Pick.By
	}
	by("x-routerd-session", "sA", "x-session-id", "sB")
	if got := by("x-routerd-session", "sA"); got != policy.BySession {
		t.Errorf("the structured session: picked by %q", got)
	}
	if got := by("x-session-id", "sB"); got == policy.BySession {
		t.Error("the flat session was bound too")
	}
	if got := by("x-dynamo-session-id", "sB"); got != policy.BySession {
		t.Errorf("the flat session by another name: picked by %q", got)
	}
	if got := by("x-claude-code-session-id", "sA"); got != policy.BySession {
		t.Errorf("the same session, named by an agent: picked by %q", got)
	}
}
