//go:build !race

package core_test

import (
	"context"
	"testing"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// TestSelectAllocatesNothingPerCandidate compares the allocations of a booking
// over 8 workers with one over 512.
func TestSelectAllocatesNothingPerCandidate(t *testing.T) {
	per := func(n int) float64 {
		w := newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) { c.DecisionEntries = 2 })
		w.join(t, workers("m1", n)...)
		c := w.SelectionCore
		text := prompt('A', 64)
		return testing.AllocsPerRun(200, func() {
			sel, err := c.Select(context.Background(), &core.Request{
				Kind: core.Book, SelectionID: "r", Partition: fleet.PartitionKey{Model: "m1", Group: "default"},
				Prompt: core.Prompt{Tokens: text},
			})
			if err != nil {
				t.Fatal(err)
			}
			sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
			w.heard.decided, w.heard.released = w.heard.decided[:0], w.heard.released[:0]
		})
	}
	small, large := per(8), per(512)
	t.Logf("%v allocations over 8 workers, %v over 512", small, large)
	// The test's own index allocates for the hashes it computes, alike for both.
	if large > small {
		t.Errorf("%v allocations over 8 workers, %v over 512; want the same", small, large)
	}
	if small > 24 {
		t.Errorf("%v allocations a booking; want at most 24", small)
	}
}
