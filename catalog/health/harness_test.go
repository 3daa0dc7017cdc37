package health_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// roster plays the catalog: it keeps the workers and asks the monitor for the
// standing of those that are new or that it was told to reconsider.
type roster struct {
	mu      sync.Mutex // guards all fields
	monitor *health.Monitor
	views   []catalog.View
	changed chan struct{}
	queue   []fleet.WorkerID
	// held are workers that lack something: they stay incomplete.
	held map[fleet.WorkerID]bool
	// reconsidered counts how often it was told to.
	reconsidered int
}

func newRoster() *roster {
	return &roster{changed: make(chan struct{}), held: map[fleet.WorkerID]bool{}}
}

func (r *roster) Workers() []catalog.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.views)
}

func (r *roster) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *roster) Reconsider(id fleet.WorkerID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reconsidered++
	r.queue = append(r.queue, id)
}

// change changes the list and tells it.
func (r *roster) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

// put adds or replaces a worker.
func (r *roster) put(rec fleet.Record) {
	r.change(func() {
		r.queue = append(r.queue, rec.ID)
		for i := range r.views {
			if r.views[i].ID == rec.ID {
				r.views[i].Record = rec
				return
			}
		}
		r.views = append(r.views, catalog.View{Record: rec, Lifecycle: core.Incomplete})
	})
}

func (r *roster) remove(id fleet.WorkerID) {
	r.change(func() {
		r.views = slices.DeleteFunc(r.views, func(v catalog.View) bool { return v.ID == id })
	})
}

// lifecycle forces one from outside, as a drain does.
func (r *roster) lifecycle(id fleet.WorkerID, l core.Lifecycle) {
	r.change(func() {
		for i := range r.views {
			if r.views[i].ID == id {
				r.views[i].Lifecycle = l
			}
		}
	})
}

func (r *roster) find(id fleet.WorkerID) (catalog.View, bool) {
	for _, v := range r.Workers() {
		if v.ID == id {
			return v, true
		}
	}
	return catalog.View{}, false
}

// settle asks for what is to be asked until nothing is.
func (r *roster) settle(ctx context.Context) {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.mu.Unlock()
			return
		}
		id := r.queue[0]
		r.queue = r.queue[1:]
		held := r.held[id]
		r.mu.Unlock()
		v, ok := r.find(id)
		if !ok || held || v.Lifecycle == core.Draining {
			continue
		}
		l, reasons := r.monitor.Standing(ctx, v.Record)
		if l == v.Lifecycle && slices.Equal(reasons, v.Reasons) {
			continue
		}
		r.change(func() {
			for i := range r.views {
				if r.views[i].ID == id {
					r.views[i].Lifecycle, r.views[i].Reasons = l, reasons
				}
			}
		})
	}
}

// record is a worker that is asked at http://NAME.
func record(t testing.TB, name string) fleet.Record {
	t.Helper()
	rec, err := fleet.Record{Name: name, URL: "http://" + name}.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func nameOf(url string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	return name
}

// answers plays the engines.
type answers struct {
	mu     sync.Mutex // guards all fields
	word   map[string]string
	status map[string]int
	asked  map[string][]time.Time
	now    int // under way
	most   int
}

func newAnswers() *answers {
	return &answers{word: map[string]string{}, status: map[string]int{}, asked: map[string][]time.Time{}}
}

// set makes a worker answer: success (the default), refused, timeout, a status …
func (a *answers) set(name, word string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var status int
	if _, err := fmt.Sscanf(word, "%d", &status); err == nil {
		word = "status"
	}
	a.word[name], a.status[name] = word, status
}

func (a *answers) times(name string) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.asked[name])
}

func (a *answers) ask(ctx context.Context, url string) (string, int) {
	name := nameOf(url)
	a.mu.Lock()
	a.asked[name] = append(a.asked[name], time.Now())
	a.now++
	a.most = max(a.most, a.now)
	word, status := a.word[name], a.status[name]
	a.mu.Unlock()
	if word == "timeout" {
		<-ctx.Done()
	}
	a.mu.Lock()
	a.now--
	a.mu.Unlock()
	if word == "" {
		word = "success"
	}
	return word, status
}

// world is a monitor that runs between a roster and engines that are played.
type world struct {
	*roster
	*answers
	monitor *health.Monitor
	ctx     context.Context //nolint:containedctx // the test's own
	cfg     health.Config
}

// start runs a monitor for the time of the test; to be called in a bubble, which
// stop must end.
func start(t *testing.T, cfg health.Config) (w *world, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w = &world{roster: newRoster(), answers: newAnswers(), ctx: ctx, cfg: cfg}
	w.monitor = health.NewAsking(cfg, w.roster, w.answers.ask, quiet())
	w.roster.monitor = w.monitor
	m, done := w.monitor, make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	return w, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// wait lets time pass, and what is due happen.
func (w *world) wait(d time.Duration) {
	const step = 10 * time.Millisecond
	for end := time.Now().Add(d); ; {
		synctest.Wait()
		w.settle(w.ctx)
		synctest.Wait()
		left := time.Until(end)
		if left <= 0 {
			return
		}
		<-time.After(min(step, left))
	}
}

// join adds workers that answer well and waits until they serve.
func (w *world) join(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		w.put(record(t, name))
	}
	w.wait(200 * time.Millisecond)
	for _, name := range names {
		if v, ok := w.find(fleet.IDFromName(name)); !ok || v.Lifecycle != core.Ready {
			t.Fatalf("%s is %q (%v), want ready", name, v.Lifecycle, v.Reasons)
		}
	}
}

func id(name string) fleet.WorkerID { return fleet.IDFromName(name) }
