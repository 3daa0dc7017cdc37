package zmq_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/testkit"
)

func threads(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	must(t, err)
	return len(entries)
}

func files(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

func TestZ4_ListenersCostNoThreadsAndLeaveNothing(t *testing.T) {
	const together = 500
	p, s, cfg := newPublisher(t, true), newSink(), quick()
	cfg.ReplayTimeout = patience // one publisher answers them all
	in := start(t, cfg)
	listen(t, in, p, s)
	in.Unregister(w1)
	wasFiles, wasThreads, wasRoutines := files(t), threads(t), runtime.NumGoroutine()
	back := func() {
		t.Helper()
		testkit.Until(t, "descriptors, threads and goroutines are back", func() bool {
			return files(t) <= wasFiles+10 && threads(t) <= wasThreads+10 && runtime.NumGoroutine() <= wasRoutines+10
		})
	}
	register := func(id fleet.WorkerID) {
		t.Helper()
		must(t, in.Register(zmq.Source{Worker: fleet.Worker{ID: id}, Endpoint: p.endpoint, Replay: p.replay, Sink: s}))
	}
	p.keep(0, payload(store(-1, 10)))
	most := 0
	for range cycles {
		had := s.count()
		register(1)
		testkit.Until(t, "an event is applied", func() bool { return s.count() > had })
		in.Unregister(w1)
		most = max(most, threads(t))
	}
	back()
	for id := range fleet.WorkerID(together) {
		register(id + 1)
	}
	testkit.Until(t, "all are fed", func() bool {
		for id := range fleet.WorkerID(together) {
			if st, _ := in.Status(fleet.Worker{ID: id + 1}); st.State != stream.Live || !st.Seen {
				return false
			}
		}
		return true
	})
	most = max(most, threads(t))
	t.Logf("%d descriptors, %d threads and %d goroutines before, %d, %d and %d with %d listeners",
		wasFiles, wasThreads, wasRoutines, files(t), threads(t), runtime.NumGoroutine(), together)
	if most >= 64 {
		t.Errorf("%d OS threads", most)
	}
	for id := range fleet.WorkerID(together) {
		in.Unregister(fleet.Worker{ID: id + 1})
	}
	back()
}
