package exact_test

import (
	"sync"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

// Those who come at once are all known, each one once, however many tell of it.
func TestWorkersThatComeAtOnceAreAllKnown(t *testing.T) {
	const workers, tellers = 200, 4
	x := exact.New(size)
	for w := range fleet.WorkerID(workers) {
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range tellers {
			all.Go(func() {
				<-start
				x.Apply(fleet.Worker{ID: w}, []kvcache.Event{stored(ids(i, 1), span(uint64(i), 1))})
				x.Apply(fleet.Worker{ID: w, Rank: uint32(i)}, []kvcache.Event{stored(ids(i, 1), span(100, 1))})
			})
		}
		close(start)
		all.Wait()
		if n := x.Blocks(fleet.Worker{ID: w})[kvcache.Device]; n != tellers+1 {
			t.Fatalf("worker %d has %d blocks, want %d", w, n, tellers+1)
		}
	}
	if n := len(x.Workers()); n != workers*tellers {
		t.Errorf("%d workers, want %d", n, workers*tellers)
	}
	for _, w := range x.Workers() {
		x.Remove(w)
	}
	if n := len(x.Workers()); n != 0 {
		t.Errorf("%d workers are left", n)
	}
}
