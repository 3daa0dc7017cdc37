package frontend_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/frontend"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/prompt"
	"github.com/routerd/routerd/upstream"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp keeps one clock goroutine for the life of the process.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
	)
}

// key is the partition of model m.
var key = fleet.PartitionKey{Model: "m", Group: "default"}

const patience = 10 * time.Second

// eventually polls a condition until it holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// wait takes one value from a channel.
func wait[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
		panic("unreachable")
	}
}

// static answers every rule with one policy.
type static struct{ handle *policy.Handle }

func (s static) Resolve(fleet.PartitionKey, string) (*policy.Handle, error) { return s.handle, nil }

// tokens is a tokenizer that a test scripts; nil answers with nothing.
type tokens struct {
	answer func(ctx context.Context, in prompt.Input) ([]uint32, prompt.Outcome)
}

func (f tokens) Tokenize(ctx context.Context, _ fleet.PartitionKey, in prompt.Input) ([]uint32, prompt.Outcome) {
	if f.answer == nil {
		return nil, prompt.Failed
	}
	return f.answer(ctx, in)
}

// released notes how bookings ended.
type released struct {
	mu   sync.Mutex
	ends []core.ReleaseEvent
}

func (r *released) Decided(*core.DecisionEvent) {}

func (r *released) Released(e *core.ReleaseEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends = append(r.ends, *e)
}

func (r *released) kinds() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	for _, e := range r.ends {
		out[string(e.Outcome.Kind)]++
	}
	return out
}

// world is a running frontend over a real core.
type world struct {
	*frontend.Server
	core     *core.SelectionCore
	released *released
	metrics  *prometheus.Registry
	log      *testkit.Log
	upstream *upstream.Client
	addr     string
	served   chan error
}

type setup struct {
	frontend frontend.Config
	upstream upstream.Config
	core     core.Config
	policy   policy.Spec
	stages   policy.StageSource // of what is not built in; may be nil
	tokens   tokens
	model    func(string) prompt.Mode
	level    slog.Level
	index    core.KvIndexSource
	selector func(*core.SelectionCore) frontend.Selector
	outcomes frontend.Outcomes
	patience time.Duration // for a request to arrive; 0 leaves it
}

// scoring is a policy of one scorer.
func scoring(use string) policy.Spec {
	return policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: use}}}}
}

func start(t testing.TB, change ...func(*setup)) *world {
	t.Helper()
	su := setup{
		frontend: frontend.DefaultConfig(), upstream: upstream.DefaultConfig(), core: core.DefaultConfig(),
		policy: scoring("builtin:least-load"), level: slog.LevelDebug, index: core.NoIndex{},
	}
	su.model = func(string) prompt.Mode {
		if su.tokens.answer == nil {
			return prompt.ModeOff
		}
		return prompt.ModeEngine
	}
	su.selector = func(c *core.SelectionCore) frontend.Selector { return c }
	for _, f := range change {
		f(&su)
	}
	pipeline, digests, err := policy.Compile(t.Context(), su.policy, su.stages)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := policy.NewHandle(policy.NewRevision("default", 1, policy.Spec{}, pipeline, digests))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{released: &released{}, metrics: prometheus.NewRegistry(), log: &testkit.Log{}, served: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: su.level}))
	w.core = core.New(su.core, core.SelectionHost{Telemetry: w.released}, static{handle}, su.index, log)
	w.upstream = upstream.New(su.upstream)
	if w.Server, err = frontend.New(su.frontend, su.selector(w.core), su.tokens, w.upstream, su.model, log, w.metrics); err != nil {
		t.Fatal(err)
	}
	w.ReportTo(su.outcomes)
	if su.patience > 0 {
		w.SetReadPatience(su.patience)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = ln.Addr().String()
	go func() { w.served <- w.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if err := w.Drain(ctx); err != nil && !errors.Is(err, frontend.ErrGrace) {
			t.Errorf("drain: %v", err)
		}
		if err := wait(t, "end of Serve", w.served); err != nil {
			t.Errorf("serve: %v", err)
		}
		w.upstream.Close()
	})
	return w
}

// join adds a worker of model m.
func (w *world) join(t testing.TB, name, url string, change ...func(*fleet.Record)) {
	t.Helper()
	rec := fleet.Record{Name: name, Model: "m", URL: url}
	for _, f := range change {
		f(&rec)
	}
	rec, err := rec.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.core.Prepare(t.Context(), rec.Partition(), 16); err != nil {
		t.Fatal(err)
	}
	if err := w.core.Commit(core.Change{Upserts: []core.Member{{Record: rec, Lifecycle: core.Ready, BlockSize: 16}}}); err != nil {
		t.Fatal(err)
	}
}

// active is the number of active requests of a worker, over its ranks.
func (w *world) active(name string) (n int64) {
	for _, p := range w.core.Partitions() {
		for _, r := range p.Ranks {
			if r.Name == name || name == "" {
				n += r.Load.ActiveRequests
			}
		}
	}
	return n
}

// metric is the sum of a metric's samples, perhaps only those with a label
// value.
func (w *world) metric(t testing.TB, name string, label ...string) (sum float64) {
	t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			found := len(label) == 0
			for _, l := range m.GetLabel() {
				found = found || l.GetValue() == label[0]
			}
			if found {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func (w *world) series(t testing.TB) (n int) {
	t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}

// peer is one connection to a fake worker.
type peer struct {
	net.Conn
	br     *bufio.Reader
	worker *worker
}

// request is what a fake worker got.
type request struct {
	line string
	head []string // header lines, in order
	body []byte
}

func (r request) values(name string) (out []string) {
	for _, l := range r.head {
		k, v, _ := strings.Cut(l, ":")
		if strings.EqualFold(k, name) {
			out = append(out, strings.TrimSpace(v))
		}
	}
	return out
}

// next reads one request; ok is false at the end of the connection.
func (p *peer) next() (r request, ok bool) {
	for {
		line, err := p.br.ReadString('\n')
		if err != nil {
			return r, false
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			break
		}
		if r.line == "" {
			r.line = line
		} else {
			r.head = append(r.head, line)
		}
	}
	length := 0
	for _, v := range r.values("Content-Length") {
		length, _ = strconv.Atoi(v)
	}
	r.body = make([]byte, length)
	if _, err := io.ReadFull(p.br, r.body); err != nil {
		return r, false
	}
	p.worker.seen.Add(1)
	return r, true
}

func (p *peer) say(s string) { _, _ = io.WriteString(p, s) }

// closedByRouter blocks until the router has closed the connection.
func (p *peer) closedByRouter() { _, _ = io.Copy(io.Discard, p.br) }

// worker is a fake engine whose every byte the test decides.
type worker struct {
	url  string
	ln   net.Listener
	seen atomic.Int64 // whole requests
	live sync.WaitGroup
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func serve(t testing.TB, script func(p *peer)) *worker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wk := &worker{url: "http://" + ln.Addr().String(), ln: ln, open: map[net.Conn]struct{}{}}
	wk.live.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			wk.mu.Lock()
			wk.open[nc] = struct{}{}
			wk.mu.Unlock()
			wk.live.Go(func() {
				defer nc.Close()
				script(&peer{Conn: nc, br: bufio.NewReader(nc), worker: wk})
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wk.mu.Lock()
		for nc := range wk.open {
			nc.Close()
		}
		wk.mu.Unlock()
		wk.live.Wait()
	})
	return wk
}

// answering serves every request with one raw answer.
func answering(t testing.TB, raw string) *worker {
	return serve(t, func(p *peer) {
		for {
			if _, ok := p.next(); !ok {
				return
			}
			p.say(raw)
		}
	})
}

// recording answers with 200 {} and hands each request on.
func recording(t testing.TB) (*worker, chan request) {
	got := make(chan request, 256)
	return serve(t, func(p *peer) {
		for {
			r, ok := p.next()
			if !ok {
				return
			}
			got <- r
			p.say(plain("{}"))
		}
	}), got
}

func plain(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

const sse = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

const lastChunk = "0\r\n\r\n"

func event(s string) string { return chunk("data: " + s + "\n\n") }

// client is an HTTP client of its own connections.
func client(t testing.TB) *http.Client {
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// answer is a response read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

func (w *world) do(t testing.TB, method, path, body string, headers ...string) answer {
	t.Helper()
	a, err := w.try(t, client(t), method, path, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (w *world) try(t testing.TB, c *http.Client, method, path, body string, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+w.addr+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

// read reads what there is of a response.
func read(resp *http.Response) answer {
	b, _ := io.ReadAll(resp.Body) // what is missing is seen
	return answer{resp.StatusCode, resp.Header, string(b)}
}

const (
	chatPath = "/v1/chat/completions"
	textPath = "/v1/completions"
	chatBody = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	textBody = `{"model":"m","prompt":"hi"}`
)

func (w *world) chat(t testing.TB, headers ...string) answer {
	t.Helper()
	return w.do(t, "POST", chatPath, chatBody, headers...)
}

// raw opens a TCP connection and writes to it.
func (w *world) raw(t testing.TB, send string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if _, err := io.WriteString(nc, send); err != nil {
		t.Fatal(err)
	}
	_ = nc.SetReadDeadline(time.Now().Add(patience))
	return nc
}

// post is a raw request.
func post(path, body string, headers ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body), strings.Join(append(headers, ""), "\r\n"), body)
}
