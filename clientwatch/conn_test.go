package clientwatch_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/clientwatch"
)

func TestConfigErrorNamesFieldValueAndRange(t *testing.T) {
	for name, edit := range map[string]func(*clientwatch.Config){
		"half_close \"maybe\": must be":   func(c *clientwatch.Config) { c.HalfClose = "maybe" },
		"write_timeout -1s: must be":      func(c *clientwatch.Config) { c.WriteTimeout = -time.Second },
		"keep_alive 1ms: must be":         func(c *clientwatch.Config) { c.KeepAlive = time.Millisecond },
		"user_timeout 48h0m0s: must be 0": func(c *clientwatch.Config) { c.UserTimeout = 48 * time.Hour },
	} {
		cfg := clientwatch.DefaultConfig()
		edit(&cfg)
		_, err := clientwatch.New(cfg)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want it to contain %q", err, name)
		}
	}
	if err := clientwatch.DefaultConfig().Validate(); err != nil {
		t.Errorf("default: %v", err)
	}
}

func TestWriteToAStalledClientTimesOutAndCountsAsGone(t *testing.T) {
	cfg := clientwatch.DefaultConfig()
	cfg.WriteTimeout = 50 * time.Millisecond
	r := start(t, cfg, "tcp")
	_, server := r.connect(t)
	called, _ := watch(t, server)
	chunk := make([]byte, 1<<20)
	for {
		if _, err := server.Write(chunk); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("write: %v, want a time-out", err)
			}
			break
		}
	}
	within(t, "failed write", called)
}

func TestDeadlineOfTheUserIsKept(t *testing.T) {
	r := start(t, clientwatch.DefaultConfig(), "tcp")
	_, server := r.connect(t)
	if err := server.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("write: %v, want a time-out", err)
	}
	if err := server.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write([]byte("x")); err != nil {
		t.Fatalf("write without a deadline: %v", err)
	}
}

func TestUnwatchedConnectionsAreServed(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if c := clientwatch.Find(a); c != nil {
		t.Fatalf("Find(pipe) = %v", c)
	}
	var none *clientwatch.Conn
	unregister, ok := none.OnGone(func() { t.Error("callback of no connection") })
	if !ok || unregister() || none.Gone() {
		t.Error("no connection: must be registrable, without effect")
	}
}

func TestRegistrationDoesNotAllocate(t *testing.T) {
	r := start(t, clientwatch.DefaultConfig(), "tcp")
	_, server := r.connect(t)
	f := func() {}
	if n := testing.AllocsPerRun(100, func() {
		unregister, _ := server.OnGone(f)
		unregister()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
