package scrape_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp, of the simulated engine, keeps the Date header's text for the life of the process.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

const patience = 10 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// list is a reconciler of which the test sets the workers.
type list struct {
	mu      sync.Mutex // guards all below
	views   []catalog.View
	changed chan struct{}
	read    int // times
}

func listOf(records ...fleet.Record) *list {
	l := &list{changed: make(chan struct{})}
	l.set(records...)
	return l
}

func (l *list) set(records ...fleet.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.views = nil
	for _, r := range records {
		l.views = append(l.views, catalog.View{Record: r, Source: "test", Lifecycle: core.Ready})
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *list) setLifecycle(to core.Lifecycle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.views {
		l.views[i].Lifecycle = to
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Workers implements scrape.Reconciler.
func (l *list) Workers() []catalog.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read++
	return slices.Clone(l.views)
}

func (l *list) reads() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.read
}

// Changed implements scrape.Reconciler.
func (l *list) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func record(id fleet.WorkerID, url string) fleet.Record {
	return fleet.Record{
		ID: id, Name: fmt.Sprintf("w%d", id), URL: url, Model: "base-model", Group: "default", Engine: "vllm", BlockSize: 16, DPSize: 1,
	}
}

// engine is what answers as an engine does, with bodies that the test sets.
type engine struct {
	*httptest.Server
	metrics, models     atomic.Pointer[string]
	path                string // of the metrics
	asked, askedModels  atomic.Int64
	running, mostAtOnce atomic.Int64
	status              atomic.Int64
	hold                atomic.Pointer[chan struct{}] // answers wait for it
}

func newEngine(t testing.TB, metrics, models string) *engine {
	t.Helper()
	e := &engine{path: "/metrics"}
	e.metrics.Store(&metrics)
	e.models.Store(&models)
	e.status.Store(http.StatusOK)
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	e.Start()
	t.Cleanup(func() {
		e.release()
		e.Close()
	})
	return e
}

func (e *engine) release() {
	if hold := e.hold.Swap(nil); hold != nil {
		close(*hold)
	}
}

func (e *engine) serve(w http.ResponseWriter, r *http.Request) {
	now := e.running.Add(1)
	defer e.running.Add(-1)
	for most := e.mostAtOnce.Load(); now > most && !e.mostAtOnce.CompareAndSwap(most, now); most = e.mostAtOnce.Load() {
	}
	if hold := e.hold.Load(); hold != nil {
		select {
		case <-*hold:
		case <-r.Context().Done():
			return
		}
	}
	if status := int(e.status.Load()); status != http.StatusOK {
		if status/100 == 3 {
			w.Header().Set("Location", e.URL+"/elsewhere")
		}
		w.WriteHeader(status)
		return
	}
	switch r.URL.Path {
	case e.path:
		e.asked.Add(1)
		_, _ = w.Write([]byte(*e.metrics.Load()))
	case "/v1/models":
		e.askedModels.Add(1)
		_, _ = w.Write([]byte(*e.models.Load()))
	default:
		http.NotFound(w, r)
	}
}

// fixture is one of the answers of engines that package engine keeps.
func fixture(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "engine", "testdata", name))
	must(t, err)
	return string(b)
}

// quick asks often.
func quick() scrape.Config {
	return scrape.Config{Interval: 100 * time.Millisecond, Timeout: 2 * time.Second, MaxAge: 10 * time.Second}
}

// start runs a scraper until the test ends.
func start(t testing.TB, s *scrape.Scraper) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			must(t, err)
		case <-time.After(patience):
			t.Error("Run does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// journal keeps what is logged.
type journal struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) lines(with string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for line := range strings.Lines(j.text.String()) {
		if strings.Contains(line, with) {
			n++
		}
	}
	return n
}

// dialling dials and counts; one at a time.
func dialling(n *int) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		*n++
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}
}

// piped is an engine behind pipes, the list that has its worker w1, and a scraper of
// that by the default settings.
func piped() (*pipeEngine, *list, *scrape.Scraper) {
	e := newPipeEngine(plain, cards())
	workers := listOf(record(1, "http://w1:1"))
	s := scrape.New(scrape.DefaultConfig(), workers, discard())
	s.SetDial(e.dial)
	return e, workers, s
}
