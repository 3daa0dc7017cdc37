// Package simtest starts simulated engines in tests. Each engine belongs to one
// test and ends with it.
package simtest

import (
	"log/slog"
	"testing"

	"github.com/routerd/routerd/sim"
)

// Start runs an engine with the default configuration, changed by change unless
// it is nil, and closes it at the end of the test.
func Start(t testing.TB, change func(*sim.Config)) *sim.Engine {
	t.Helper()
	c := sim.DefaultConfig()
	if change != nil {
		change(&c)
	}
	e, err := sim.New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close engine: %v", err)
		}
	})
	return e
}
