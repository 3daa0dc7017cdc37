package sim_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
)

// Close may come before the goroutine that serves has begun.
func TestAnEngineThatIsClosedAtOnceEnds(t *testing.T) {
	for range 200 {
		e, err := sim.New(sim.DefaultConfig(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- e.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.Fatalf("close: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the engine does not end")
		}
	}
}
