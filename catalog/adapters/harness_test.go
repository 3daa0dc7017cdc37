package adapters_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/catalog/engine"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp keeps one clock goroutine for the life of the process.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
	)
}

type place struct {
	worker  fleet.WorkerID
	adapter string
}

// router is the part of a core that the manager needs, over one partition: the
// allocation and the narrowing are the real ones.
type router struct {
	mu     sync.Mutex // guards all fields
	alloc  *lora.Allocator
	table  *lora.Allocation
	states map[place]lora.State
	uses   map[place]int
	plans  int
	last   []lora.Worker
	// forced stands in for the allocator where it is set.
	forced func(workers []lora.Worker) []lora.Action
}

var _ adapters.Core = (*router)(nil)

func newRouter() *router {
	cfg := lora.DefaultAllocatorConfig()
	cfg.Window, cfg.Alpha = time.Second, 1 // quick to forget
	return &router{alloc: lora.NewAllocator(cfg), states: map[place]lora.State{}, uses: map[place]int{}}
}

func (r *router) PlanAdapters(now time.Time, workers []lora.Worker) []lora.Action {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plans++
	r.last = slices.Clone(workers)
	if r.forced != nil {
		return r.forced(workers)
	}
	var actions []lora.Action
	r.table, actions = r.alloc.Tick(now, workers)
	return actions
}

func (r *router) SetAdapterState(w fleet.WorkerID, adapter string, s lora.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states[place{w, adapter}] = s
}

func (r *router) ForgetAdapterState(w fleet.WorkerID, adapter string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.states, place{w, adapter})
}

func (r *router) AdapterUses(w fleet.WorkerID, adapter string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uses[place{w, adapter}]
}

func (r *router) state(w fleet.WorkerID, adapter string) lora.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[place{w, adapter}]
}

// told tells whether anything was told and not taken back.
func (r *router) told(w fleet.WorkerID, adapter string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.states[place{w, adapter}]
	return ok
}

// planned is what the last plan was made for.
func (r *router) planned() []lora.Worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.last)
}

func (r *router) use(w fleet.WorkerID, adapter string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uses[place{w, adapter}] += n
}

func (r *router) force(f func([]lora.Worker) []lora.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forced = f
}

// book chooses a worker for a request as the core does, and books it; ok is false
// when nobody has the adapter.
func (r *router) book(adapter string, workers []fleet.WorkerID, nth int) (w fleet.WorkerID, ok bool) {
	r.alloc.Arrived(adapter, time.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	universe, keep := make([]lora.Candidate, len(workers)), make([]bool, len(workers))
	for i, id := range workers {
		universe[i] = lora.Candidate{Worker: id, State: r.states[place{id, adapter}], RegistrationRequired: true}
	}
	lora.Narrow(r.table, adapter, universe, keep)
	var left []fleet.WorkerID
	for i, id := range workers {
		if keep[i] {
			left = append(left, id)
		}
	}
	if len(left) == 0 {
		return 0, false
	}
	w = left[nth%len(left)]
	r.uses[place{w, adapter}]++
	return w, true
}

// workerList is a list of workers that a test changes.
type workerList struct {
	mu   sync.Mutex // guards list
	list []catalog.View
}

func (l *workerList) Workers() []catalog.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

func (l *workerList) add(r fleet.Record, lifecycle core.Lifecycle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, catalog.View{Record: r, Lifecycle: lifecycle})
}

// stand changes where a worker stands.
func (l *workerList) stand(id fleet.WorkerID, lifecycle core.Lifecycle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.list {
		if l.list[i].ID == id {
			l.list[i].Lifecycle = lifecycle
		}
	}
}

func (l *workerList) remove(id fleet.WorkerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(v catalog.View) bool { return v.ID == id })
}

// bench is a running manager over simulated engines.
type bench struct {
	*adapters.Manager
	t       *testing.T
	router  *router
	workers *workerList
	urls    map[fleet.WorkerID]string
	client  *http.Client
}

func newBench(t *testing.T) *bench {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &bench{
		t: t, router: newRouter(), workers: &workerList{}, urls: map[fleet.WorkerID]string{},
		client: &http.Client{Transport: transport, Timeout: 20 * time.Second},
	}
}

// engine starts an engine that can load adapters and makes it a ready worker.
func (b *bench) engine(id fleet.WorkerID, kind string, change func(*sim.Config)) {
	b.t.Helper()
	e := simtest.Start(b.t, func(c *sim.Config) {
		c.Name, c.Events, c.AdapterUpdates = fmt.Sprint("w", id), false, true
		if change != nil {
			change(c)
		}
	})
	b.worker(id, kind, e.URL())
}

func (b *bench) worker(id fleet.WorkerID, kind, url string) {
	b.urls[id] = url
	b.workers.add(fleet.Record{ID: id, Name: fmt.Sprint("w", id), URL: url, Model: "sim-model", Engine: kind}, core.Ready)
}

// run starts the manager; it is stopped at the end of the test.
func (b *bench) run(cfg adapters.Config) {
	b.t.Helper()
	if err := cfg.Validate(); err != nil {
		b.t.Fatal(err)
	}
	b.Manager = adapters.New(cfg, b.router, b.workers, slog.New(slog.DiscardHandler))
	adapters.Hurry(b.Manager)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	b.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.t.Errorf("run: %v", err)
		}
	})
}

// manage is a configuration for adapters of sim-model.
func manage(slots int, names ...string) adapters.Config {
	cfg := adapters.Config{Slots: slots}
	for _, n := range names {
		cfg.Manage = append(cfg.Manage, adapters.Adapter{Name: n, Model: "sim-model", Path: "/lora/" + n})
	}
	return cfg
}

// post sends a request to an engine and returns status and body.
func (b *bench) post(id fleet.WorkerID, path, body string) (int, string) {
	resp, err := b.client.Post(b.urls[id]+path, "application/json", strings.NewReader(body))
	if err != nil {
		b.t.Errorf("%s: %v", path, err)
		return 0, ""
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Errorf("%s: %v", path, err)
	}
	return resp.StatusCode, string(raw)
}

func (b *bench) clearFaults(id fleet.WorkerID) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodDelete, b.urls[id]+"/sim/faults", http.NoBody)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	resp.Body.Close()
}

func (b *bench) get(id fleet.WorkerID, path string) string {
	b.t.Helper()
	resp, err := b.client.Get(b.urls[id] + path)
	if err != nil {
		b.t.Fatalf("%s: %v", path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatalf("%s: %v", path, err)
	}
	return string(raw)
}

// loaded lists what an engine has loaded.
func (b *bench) loaded(id fleet.WorkerID) []string {
	b.t.Helper()
	names, err := engine.Adapters(strings.NewReader(b.get(id, "/v1/models")))
	if err != nil {
		b.t.Fatal(err)
	}
	return names
}

func (b *bench) has(id fleet.WorkerID, adapter string) bool {
	b.t.Helper()
	return slices.Contains(b.loaded(id), adapter)
}

// holders are the workers whose engines have the adapter.
func (b *bench) holders(adapter string) []fleet.WorkerID {
	b.t.Helper()
	ids := []fleet.WorkerID{}
	for id := range b.urls {
		if b.has(id, adapter) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (b *bench) view(worker, adapter string) adapters.View {
	for _, v := range b.Adapters() {
		if v.Worker == worker && v.Adapter == adapter {
			return v
		}
	}
	return adapters.View{}
}

// plansPass waits until the core was asked n more times.
func (b *bench) plansPass(n int) {
	b.t.Helper()
	count := func() int {
		b.router.mu.Lock()
		defer b.router.mu.Unlock()
		return b.router.plans
	}
	first := count()
	b.eventually("more plans", func() bool { return count() >= first+n })
}

// eventually polls a condition for at most 10 s.
func (b *bench) eventually(what string, good func() bool) {
	b.t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !good() {
		select {
		case <-deadline:
			b.t.Fatalf("did not happen: %s; %+v", what, b.Adapters())
		case <-tick.C:
		}
	}
}
