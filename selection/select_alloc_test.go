//go:build !race

// The race detector makes pools forget at random, so allocations are counted without it.

package selection_test

import (
	"testing"

	"github.com/routerd/routerd/core"
)

// The buffers for the prompt are used again: what a selection allocates does not grow
// with the prompt.
func TestASelectionAllocatesAFewThingsWhateverThePrompt(t *testing.T) {
	w := newWorld(t, options{core: func(c *core.Config) { c.DecisionEntries = 2 }})
	w.fleetOf(t, 8)
	allocations := func(tokens int) float64 {
		call := w.call(t, "/select", selectOf(tokens))
		for range 4 {
			call()
		}
		return testing.AllocsPerRun(200, call)
	}
	small, large := allocations(64), allocations(8192)
	t.Logf("%.1f allocations for 64 tokens, %.1f for 8192", small, large)
	if small > 45 || large > small+8 {
		t.Errorf("%.1f allocations for 64 tokens, %.1f for 8192", small, large)
	}
}
