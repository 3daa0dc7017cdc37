package clientwatch_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/routerd/routerd/clientwatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 5 * time.Second

// rig is a running watcher with one wrapped listener.
type rig struct {
	watcher *clientwatch.Watcher
	ln      net.Listener
}

func start(t *testing.T, cfg clientwatch.Config, network string) *rig {
	t.Helper()
	w, err := clientwatch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	inner, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{watcher: w, ln: w.Wrap(inner)}
	ran := make(chan error, 1)
	go func() { ran <- w.Run(context.Background()) }()
	t.Cleanup(func() {
		r.ln.Close()
		if err := w.Close(); err != nil {
			t.Errorf("close watcher: %v", err)
		}
		if err := <-ran; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return r
}

// connect dials and accepts one connection.
func (r *rig) connect(t *testing.T) (client net.Conn, server *clientwatch.Conn) {
	t.Helper()
	client, err := net.Dial(r.ln.Addr().Network(), r.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := r.ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); nc.Close() })
	return client, nc.(*clientwatch.Conn)
}

// watch registers a callback that signals on the returned channel.
func watch(t *testing.T, c *clientwatch.Conn) (called chan time.Time, unregister func() bool) {
	t.Helper()
	called = make(chan time.Time, 2)
	unregister, ok := c.OnGone(func() { called <- time.Now() })
	if !ok {
		t.Fatal("OnGone: the client has gone already")
	}
	return called, unregister
}

func within(t *testing.T, what string, called <-chan time.Time) time.Time {
	t.Helper()
	select {
	case at := <-called:
		return at
	case <-time.After(patience):
		t.Fatalf("%s: no callback within %v", what, patience)
		return time.Time{}
	}
}

func quiet(t *testing.T, what string, called <-chan time.Time) {
	t.Helper()
	select {
	case <-called:
		t.Fatalf("%s: unexpected callback", what)
	case <-time.After(50 * time.Millisecond):
	}
}
