package frontend_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/frontend"
)

func TestFailuresOfWorkersThatAreGoneMakeNoSeries(t *testing.T) {
	w := start(t, func(s *setup) { s.upstream.Breaker.Failures = 0 }) // all share an address
	w.join(t, "stays", "http://127.0.0.1:9")
	w.chat(t)
	before := w.series(t)
	for i := range 50 {
		name := fmt.Sprintf("w%d", i)
		w.join(t, name, "http://127.0.0.1:9")
		w.chat(t, "x-routerd-pin", name)
		if n := w.metric(t, "routerd_frontend_worker_failures_total", name); n != 1 {
			t.Fatalf("%v failures of %s", n, name)
		}
		if err := w.core.Commit(core.Change{Removals: []fleet.WorkerID{fleet.IDFromName(name)}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.series(t); n != before {
		t.Errorf("%d series became %d, want those of the worker that stays alone", before, n)
	}
	if n := w.metric(t, "routerd_frontend_worker_failures_total", "stays"); n != 1 {
		t.Errorf("%v failures of the worker that stays", n)
	}
}

// lateList is a core whose list of workers takes long and is old when it comes.
type lateList struct {
	*core.SelectionCore
	held  atomic.Bool
	asked chan struct{}
	gives chan struct{}
}

func (l *lateList) Partitions() []core.PartitionView {
	list := l.SelectionCore.Partitions()
	if l.held.Load() {
		l.asked <- struct{}{}
		<-l.gives
	}
	return list
}

// Whoever reads the metrics or clears up after a failure holds up no request, and a
// worker that came meanwhile keeps its failures.
func TestAListOfWorkersThatTakesLongHoldsUpNoRequest(t *testing.T) {
	fail := func(t *testing.T, w *world, name string) error {
		_, err := w.try(t, client(t), "POST", chatPath, chatBody, "x-routerd-pin", name)
		return err
	}
	for name, begin := range map[string]func(*testing.T, *world) error{
		"the metrics are read": func(_ *testing.T, w *world) error { _, err := w.metrics.Gather(); return err },
		"another one failed":   func(t *testing.T, w *world) error { return fail(t, w, "w1") },
	} {
		t.Run(name, func(t *testing.T) {
			l := &lateList{asked: make(chan struct{}), gives: make(chan struct{})}
			w := start(t, func(s *setup) {
				s.upstream.Breaker.Failures, s.frontend.Retries = 0, 0
				s.selector = func(c *core.SelectionCore) frontend.Selector {
					l.SelectionCore = c
					return l
				}
			})
			for _, name := range []string{"w0", "w1"} {
				w.join(t, name, "http://127.0.0.1:9")
			}
			w.chat(t, "x-routerd-pin", "w0")
			l.held.Store(true)
			ended := make(chan error, 2)
			go func() { ended <- begin(t, w) }()
			wait(t, "question for the list", l.asked)
			w.join(t, "w2", "http://127.0.0.1:9")
			go func() { ended <- fail(t, w, "w2") }()
			if err := wait(t, "end of the request", ended); err != nil {
				t.Error(err)
			}
			l.held.Store(false)
			close(l.gives)
			if err := wait(t, "end of what asked for the list", ended); err != nil {
				t.Error(err)
			}
			for _, name := range []string{"w0", "w2"} {
				if n := w.metric(t, "routerd_frontend_worker_failures_total", name); n != 1 {
					t.Errorf("%v failures of %s, want 1", n, name)
				}
			}
		})
	}
}
