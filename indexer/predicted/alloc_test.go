//go:build !race && !indexcheck

// The race detector makes pools forget at random, so allocations are counted without it.

package predicted_test

import (
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

func TestARecordOfWhatIsHeldAllocatesNothing(t *testing.T) {
	x := closing(t)
	x.Apply(w1, []kvcache.Event{stored(kvcache.Device, 1, 10)})
	blocks := prompt(1, 10)
	x.Record(w1, blocks)
	if got := testing.AllocsPerRun(50, func() { x.Record(w1, blocks) }); got >= 1 {
		t.Errorf("%v allocations a record, want 0", got)
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	x := closing(t)
	workers := []fleet.Worker{w1, w2}
	x.Record(w1, prompt(1, 10))
	x.Apply(w2, []kvcache.Event{stored(kvcache.Device, 1, 5)})
	blocks, out := prompt(1, 10), make([]kvcache.Overlap, 2)
	x.Find(blocks, workers, out)
	if got := testing.AllocsPerRun(50, func() { x.Find(blocks, workers, out) }); got >= 1 {
		t.Errorf("%v allocations a find, want 0", got)
	}
}
