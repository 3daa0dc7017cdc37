package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
)

// patient is a worker that keeps the requests with a header X-Who until the test
// lets one go, or the client has gone; the others it answers at once.
type patient struct {
	begun chan string // whose it keeps; large enough for all of a test
	let   chan struct{}
}

func newPatient() *patient {
	return &patient{begun: make(chan string, 1000), let: make(chan struct{})}
}

func (p *patient) serve(w http.ResponseWriter, req *http.Request) {
	who := req.Header.Get("X-Who")
	if req.URL.Path == "/tokenize" || who == "" {
		fine(w, req)
		return
	}
	_, _ = io.Copy(io.Discard, req.Body) // then the server notices a client that goes
	p.begun <- who
	select {
	case <-p.let:
		fine(w, req)
	case <-req.Context().Done():
	}
}

// next is whose request the worker keeps next.
func (p *patient) next(t *testing.T) string {
	t.Helper()
	select {
	case who := <-p.begun:
		return who
	case <-time.After(10 * time.Second):
		t.Fatal("no further request came to the worker")
		return ""
	}
}

// waitingRouter is a router with one patient worker and a default class as the
// test wants it.
func waitingRouter(t *testing.T, class func(*config.QueueClass), change ...func(*config.Config)) (*reloadable, *patient) {
	t.Helper()
	p, cfg := newPatient(), settings(t)
	rec := record(t, "w1", fakeWorker(t, p.serve))
	rec.TotalKVBlocks = 2
	cfg.Workers.Static = append(cfg.Workers.Static, rec)
	defaultClass(class)(&cfg)
	for _, f := range change {
		f(&cfg)
	}
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	return r, p
}

// defaultClass changes the class default and nothing that others hold.
func defaultClass(change func(*config.QueueClass)) func(*config.Config) {
	return func(c *config.Config) {
		c.Queue.Classes = maps.Clone(c.Queue.Classes)
		class := c.Queue.Classes["default"]
		change(&class)
		c.Queue.Classes["default"] = class
	}
}

// busyAt has a class busy from so many requests on, and says how long they wait.
func busyAt(active int, timeout time.Duration) func(*config.QueueClass) {
	return func(c *config.QueueClass) {
		c.Busy.ActiveRequests, c.Timeout = active, config.Duration(timeout)
		c.Limits = config.QueueLimits{Requests: config.Unlimited, Tokens: config.Unlimited, CachedTokens: config.Unlimited}
	}
}

// send begins a request beside the test, which ends it at the latest. words is
// the length of its prompt.
func send(t *testing.T, a *app.App, who, class string, words int) (giveUp func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.FrontendURL()+"/v1/completions",
		strings.NewReader(fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":2}`, strings.Repeat("word ", words))))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Who", who)
	if class != "" {
		req.Header.Set("X-Routerd-Class", class)
	}
	var sent sync.WaitGroup
	sent.Go(func() {
		if resp, err := client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	})
	end := func() { cancel(); sent.Wait() }
	t.Cleanup(end)
	return end
}

// refusal is what a request that nobody keeps is answered.
type refusal struct {
	status int
	Error  struct{ Message, Code, Param string }
}

func (r *reloadable) probe(t *testing.T, headers ...string) (a refusal) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.FrontendURL()+"/v1/completions", strings.NewReader(`{"model":"m","prompt":"some words","max_tokens":2}`))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	status, body := answerOf(t, req)
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	a.status = status
	return a
}

type waitingView struct {
	Partitions []struct {
		Ranks []struct {
			Load struct {
				PrefillTokens  int64 `json:"prefill_tokens"`
				ActiveRequests int64 `json:"active_requests"`
			}
		}
		Queue []struct {
			Class    string
			Requests int
			Tokens   int64
		}
		Sessions struct{ Bound, Initialising, Leases int }
	}
}

// waits is what waits over all classes.
func (r *reloadable) waits(t *testing.T) (requests int, tokens int64) {
	t.Helper()
	for _, q := range show[waitingView](t, r, "/v1/partitions").Partitions[0].Queue {
		requests, tokens = requests+q.Requests, tokens+q.Tokens
	}
	return requests, tokens
}

func (r *reloadable) untilWaiting(t *testing.T, n int) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("%d requests wait", n), func() bool { got, _ := r.waits(t); return got == n })
}

func TestU2_TheGaugesOfTheQueueFollowWhoWaitsAndWhoGoes(t *testing.T) {
	r, p := waitingRouter(t, busyAt(1, time.Minute))
	send(t, r.App, "first", "", 1)
	p.next(t)
	var leave []func()
	for i := range 20 {
		leave = append(leave, send(t, r.App, fmt.Sprint(i), "", 8))
	}
	r.untilWaiting(t, 20)
	_, tokens := r.waits(t)
	for _, end := range leave[:12] {
		end()
	}
	gone := time.Now()
	r.untilWaiting(t, 8)
	if took := time.Since(gone); took > time.Second {
		t.Errorf("the depth was right after %s, at best after 100 ms", took)
	}
	const labels = `{class="default",group="default",model="m"}`
	got := []float64{metric(t, r, "routerd_queue_requests"+labels), metric(t, r, "routerd_queue_tokens"+labels)}
	if diff := cmp.Diff([]float64{8, float64(tokens) * 8 / 20}, got); diff != "" {
		t.Errorf("gauges (-want +got)\n%s", diff)
	}
	served := 0
	for range 9 {
		p.let <- struct{}{}
		if served++; served < 9 {
			p.next(t)
		}
	}
	testkit.Until(t, "all have ended", func() bool {
		return show[waitingView](t, r, "/v1/partitions").Partitions[0].Ranks[0].Load.ActiveRequests == 0
	})
	if n := len(p.begun); n != 0 {
		t.Errorf("%d requests of clients that have gone came to the worker", n)
	}
	if n := metric(t, r, `routerd_queue_wait_seconds_count{class="default",group="default",model="m"}`); n != 20 {
		t.Errorf("%v waits were measured, want 20", n)
	}
}

func TestTheCoresClockRunsBesideTheRouter(t *testing.T) {
	r, _ := waitingRouter(t, func(*config.QueueClass) {}, func(c *config.Config) { c.Affinity.TTL = config.Duration(time.Second) })
	r.probe(t, "X-Routerd-Session", "s")
	bound := func() int { return show[waitingView](t, r, "/v1/partitions").Partitions[0].Sessions.Bound }
	if bound() != 1 {
		t.Fatal("the session is not bound")
	}
	testkit.Until(t, "the session ends by itself", func() bool { return bound() == 0 })
	if n := metric(t, r, `routerd_affinity_expired_total{group="default",model="m"}`); n != 1 {
		t.Errorf("%v sessions have expired, want 1", n)
	}
}

func TestTheTableOfSessionsIsAsLargeAsConfigured(t *testing.T) {
	r, _ := waitingRouter(t, func(*config.QueueClass) {}, func(c *config.Config) { c.Affinity.Entries = 2 })
	for _, s := range []string{"a", "b", "c", "d"} {
		if a := r.probe(t, "X-Routerd-Session", s); a.status != http.StatusOK {
			t.Errorf("%s: %+v", s, a)
		}
	}
	if n := metric(t, r, `routerd_affinity_full_total{group="default",model="m"}`); n != 2 {
		t.Errorf("%v requests were left without a binding, want 2", n)
	}
	if n := metric(t, r, `routerd_affinity_sessions{group="default",model="m",state="bound"}`); n != 2 {
		t.Errorf("%v sessions are bound, want 2", n)
	}
}

func TestWithoutATTLNoSessionIsBound(t *testing.T) {
	r, _ := waitingRouter(t, func(*config.QueueClass) {}, func(c *config.Config) { c.Affinity.TTL = 0 })
	r.probe(t, "X-Routerd-Session", "s")
	if n := show[waitingView](t, r, "/v1/partitions").Partitions[0].Sessions.Bound; n != 0 {
		t.Errorf("%d sessions are bound", n)
	}
}

func TestTheEstimatorIsTheConfiguredOne(t *testing.T) {
	for _, c := range []struct {
		load config.RoutingLoad
		want bool // whether the tokens are gone while the worker still works on them
	}{
		{config.RoutingLoad{Estimator: "none"}, false},
		{config.RoutingLoad{Estimator: "learned"}, false}, // nothing was learned yet
		{config.RoutingLoad{Estimator: "rate", TokensPerSecond: 1e9}, true},
	} {
		r, p := waitingRouter(t, func(*config.QueueClass) {}, func(cfg *config.Config) { cfg.Routing.Load = c.load })
		send(t, r.App, "first", "", 100)
		p.next(t)
		if got := show[waitingView](t, r, "/v1/partitions").Partitions[0].Ranks[0].Load.PrefillTokens == 0; got != c.want {
			t.Errorf("%s: no tokens are left: %t, want %t", c.load.Estimator, got, c.want)
		}
	}
}

func TestSessionsAndTheEstimatorNeedARestart(t *testing.T) {
	r := startReloadable(t, settings(t))
	r.set(func(c *config.Config) {
		c.Affinity.TTL, c.Affinity.Entries = config.Duration(time.Minute), 10
		c.Routing.Load = config.RoutingLoad{Estimator: "rate", TokensPerSecond: 100}
	})
	got := r.reload(t)
	if got.status != http.StatusConflict || got.Error.Details.Item != "affinity.entries, affinity.ttl, routing.load.estimator, routing.load.tokens_per_second" {
		t.Errorf("got %+v", got)
	}
	if want := `affinity.ttl: "1m" is not allowed; allowed: "30m", or a restart`; !strings.Contains(got.Error.Message, want) {
		t.Errorf("the message lacks %s: %s", want, got.Error.Message)
	}
}
