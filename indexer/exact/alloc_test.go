//go:build !race && !indexcheck

// The race detector makes pools forget at random, so allocations are counted without it.

package exact_test

import (
	"runtime"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
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

// Runs that get longer and shorter block by block use the memory again that others had before.
func TestBlocksThatComeAndGoOneByOneUseMemoryAgain(t *testing.T) {
	s := shape{workers: 4, blocks: 20_000, depth: 64, event: 1, families: 64, keep: 1000}
	all := make([][]kvcache.Event, s.workers)
	for w := range all {
		var later []kvcache.Event
		s.prompts(w, func(made, gone []kvcache.Event) {
			all[w], later = append(all[w], made...), append(later, gone...)
		})
		all[w] = append(all[w], later...)
	}
	x := exact.New(size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	most := int64(0)
	for i := range all[0] {
		for w := range all {
			x.Apply(fleet.Worker{ID: fleet.WorkerID(w)}, all[w][i:i+1])
		}
		if i%1000 == 0 {
			most = max(most, x.Bytes())
		}
	}
	runtime.ReadMemStats(&after)
	total := int64(after.TotalAlloc - before.TotalAlloc)
	t.Logf("%d bytes were allocated for an index of at most %d", total, most)
	if total > 8*most {
		t.Errorf("%d bytes were allocated for an index of at most %d", total, most)
	}
}
