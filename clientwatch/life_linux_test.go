package clientwatch_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/routerd/routerd/clientwatch"
)

func TestUnregisteredCallbackNeverRuns(t *testing.T) {
	r := start(t, clientwatch.DefaultConfig(), "tcp")
	client, server := r.connect(t)
	first, unregister := watch(t, server)
	if !unregister() {
		t.Fatal("unregister came too late")
	}
	if unregister() {
		t.Fatal("the second unregister claims to have done something")
	}
	second, unregister := watch(t, server)
	client.Close()
	within(t, "second registration", second)
	quiet(t, "first registration", first)
	if unregister() {
		t.Fatal("unregister claims that a callback that ran never will")
	}
}

func TestCallbackRunsOnceOrUnregisterWinsNeverBoth(t *testing.T) {
	r := start(t, clientwatch.DefaultConfig(), "tcp")
	for range 200 {
		client, server := r.connect(t)
		var calls atomic.Int32
		ran := make(chan struct{})
		unregister, ok := server.OnGone(func() { calls.Add(1); close(ran) })
		if !ok {
			t.Fatal("gone already")
		}
		var wg sync.WaitGroup
		wg.Go(func() { client.Close() })
		stopped := unregister()
		wg.Wait()
		if !stopped {
			<-ran
		}
		server.Close()
		if n := calls.Load(); (n == 1) == stopped {
			t.Fatalf("unregistered %v and %d calls", stopped, n)
		}
	}
}

func TestLateEventOfAClosedConnectionIsHarmless(t *testing.T) {
	r := start(t, clientwatch.DefaultConfig(), "tcp")
	_, old := r.connect(t)
	before, _ := watch(t, old)
	old.Close()
	_, next := r.connect(t) // reuses the descriptor
	called, _ := watch(t, next)
	clientwatch.Deliver(r.watcher, old) // was read from the kernel before the close
	quiet(t, "connection that the server closed", before)
	quiet(t, "its successor", called)
	if next.Gone() {
		t.Error("the successor counts as gone")
	}
	clientwatch.Deliver(r.watcher, next)
	within(t, "own event", called)
	clientwatch.Deliver(r.watcher, next)
	quiet(t, "event delivered twice", called)
}

func TestEventsBeforeRunAreKept(t *testing.T) {
	w, err := clientwatch.New(clientwatch.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{watcher: w, ln: w.Wrap(inner)}
	defer r.ln.Close()
	client, server := r.connect(t)
	called, _ := watch(t, server)
	client.Close()
	quiet(t, "before Run", called)
	ran := make(chan error, 1)
	go func() { ran <- w.Run(context.Background()) }()
	within(t, "after Run", called)
	if err := errors.Join(w.Close(), <-ran); err != nil {
		t.Fatal(err)
	}
}

func TestThousandConnectionsLeaveNoDescriptor(t *testing.T) {
	r := start(t, clientwatch.DefaultConfig(), "tcp")
	warm, server := r.connect(t)
	warm.Close()
	server.Close()
	before := descriptors(t)
	for range 10 {
		var calls sync.WaitGroup
		var servers []*clientwatch.Conn
		for range 100 {
			client, server := r.connect(t)
			calls.Add(1)
			if _, ok := server.OnGone(calls.Done); !ok {
				t.Fatal("gone already")
			}
			servers = append(servers, server)
			client.Close()
		}
		calls.Wait()
		for _, s := range servers {
			s.Close()
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	if n := r.watcher.Open(); n != 0 {
		t.Errorf("%d connections still known", n)
	}
	if n := r.watcher.Unwatched(); n != 0 {
		t.Errorf("%d connections were not watched", n)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestCloseEndsRunWaitsAndIsIdempotent(t *testing.T) {
	w, err := clientwatch.New(clientwatch.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	cancel()
	if err := <-ran; err != nil {
		t.Fatalf("Run ended by its context: %v", err)
	}
	if err := w.Run(context.Background()); !errors.Is(err, clientwatch.ErrRan) {
		t.Errorf("second Run: %v, want ErrRan", err)
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if err := w.Run(context.Background()); err != nil {
		t.Errorf("Run after Close: %v", err)
	}
}
