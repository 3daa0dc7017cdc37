package core_test

import (
	"context"
	"testing"

	"github.com/routerd/routerd/core/policy"
)

// A stage of ours that panics is a bug; whoever recovers from it above the core goes
// on with a core that holds nothing for that request.
func TestAPanicOfAStageLeavesNothing(t *testing.T) {
	for _, name := range []string{"at once", "in a turn"} {
		t.Run(name, func(t *testing.T) {
			var w *world
			asked, from := 0, 1
			if name == "in a turn" {
				from = 3
			}
			st := &stage{score: func(_ context.Context, _ *policy.Table, scores []float64) error {
				clear(scores)
				asked++
				if asked == from {
					panic("boom")
				}
				if asked < from { // somebody else books all there is: the decision is void
					for _, worker := range []string{"w1", "w2"} {
						other := bookRequest("other"+worker+name+string(rune('0'+asked)), nil)
						other.Pin = pinOf(worker)
						sel, err := w.Select(t.Context(), other)
						if err != nil {
							t.Error(err)
							continue
						}
						sel.Reservation.Release(completed)
					}
				}
				return nil
			}}
			w = newWorld(t, use("module:x"), stages{st})
			w.join(t, record("w1", "m1"), record("w2", "m1"))
			func() {
				defer func() {
					if got := recover(); got != "boom" {
						t.Errorf("recovered %v", got)
					}
				}()
				_, err := w.Select(t.Context(), inSession("id", "s"))
				t.Errorf("no panic, but %v", err)
			}()
			if msg := w.leftOver(); msg != "" {
				t.Error(msg)
			}
			asked = from
			sel, err := w.Select(t.Context(), inSession("id", "s"))
			if err != nil {
				t.Fatalf("the same id and session again: %v", err)
			}
			sel.Reservation.Release(completed)
			if msg := w.leftOver(); msg != "" {
				t.Error(msg)
			}
		})
	}
}
