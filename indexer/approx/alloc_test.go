//go:build !race && !indexcheck

// The race detector makes pools forget at random, so allocations are counted without it.

package approx_test

import (
	"testing"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/approx"
	"github.com/routerd/routerd/kvcache"
)

func TestFindAndARepeatedRecordAllocateNothing(t *testing.T) {
	x := index(t, approx.Config{TTL: time.Hour, MaxBlocks: 1 << 20, MaxBytes: 1 << 30})
	var workers []fleet.Worker
	for i := range 64 {
		workers = append(workers, fleet.Worker{ID: fleet.WorkerID(i)})
		x.Record(workers[i], prompt(1, 512))
	}
	blocks, out := prompt(1, 512), make([]kvcache.Overlap, len(workers))
	x.Find(blocks, workers, out)
	if got := testing.AllocsPerRun(50, func() { x.Find(blocks, workers, out) }); got >= 1 {
		t.Errorf("%v allocations a find, want 0", got)
	}
	if got := testing.AllocsPerRun(50, func() { x.Record(workers[5], blocks) }); got >= 1 {
		t.Errorf("%v allocations a repeated record, want 0", got)
	}
}
