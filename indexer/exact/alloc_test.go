//go:build !race

// The race detector makes pools forget at random, so allocations are counted without it.

package exact_test

import (
	"testing"

	"github.com/routerd/routerd/kvcache"
)

func TestFindAllocatesNothing(t *testing.T) {
	x, blocks, workers := loaded(64, 64)
	out := make([]kvcache.Overlap, len(workers))
	x.Find(blocks, workers, out)
	if got := testing.AllocsPerRun(50, func() { x.Find(blocks, workers, out) }); got >= 1 {
		t.Errorf("%v allocations a find, want 0", got)
	}
}
