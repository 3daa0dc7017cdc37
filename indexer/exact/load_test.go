package exact_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

func TestI4_ReadersSeeNoLessThanWhatAWorkerHoldsThroughout(t *testing.T) {
	x := exact.New(size)
	steady := fleet.Worker{ID: 1000}
	x.Apply(steady, []kvcache.Event{stored(ids(1, 8), span(1, 8))})
	blocks, _ := kvcache.BlockHashes(nil, ids(1, 8), size, kvcache.Seed("", ""))
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	for w := range uint64(8) {
		writers.Go(func() {
			who := fleet.Worker{ID: fleet.WorkerID(w)}
			for round := range 40 {
				lower := stored(ids(1, 8), span(1, 8))
				lower.Tier = kvcache.Tier(round % kvcache.Tiers)
				x.Apply(who, []kvcache.Event{stored(ids(1, 8), span(1, 8)), stored(ids(round, 4), span(50, 4)), removed(numbers(3, 51)), lower})
				switch round % 5 {
				case 0:
					x.Clear(who)
				case 1:
					x.Remove(who)
				}
			}
		})
	}
	for r := range 8 {
		readers.Go(func() {
			asked := []fleet.Worker{{ID: fleet.WorkerID(r)}, steady, {ID: 5}}
			out := make([]kvcache.Overlap, 3)
			for {
				select {
				case <-stop:
					return
				default:
				}
				x.Find(blocks, asked, out)
				x.Blocks(asked[0])
				if s, ok := x.Snapshot(asked[r%2]); ok {
					exact.New(size).Restore(s.Worker, s.Rest, s.Changes)
				}
				if all := out[0].Device + out[0].Host + out[0].Disk + out[0].Shared; out[1] != (kvcache.Overlap{Device: 8}) || all > 8 {
					t.Errorf("overlaps %v", out)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

// loaded returns an index in which 64 workers hold a prompt of depth blocks.
func loaded(workers, depth int) (*exact.Index, []kvcache.BlockHash, []fleet.Worker) {
	x := exact.New(size)
	var all []fleet.Worker
	for i := range workers {
		w := fleet.Worker{ID: fleet.WorkerID(i)}
		all = append(all, w)
		x.Apply(w, []kvcache.Event{stored(ids(1, depth), span(1, uint64(depth)))})
	}
	blocks, _ := kvcache.BlockHashes(nil, ids(1, depth), size, kvcache.Seed("", ""))
	return x, blocks, all
}

func BenchmarkFind(b *testing.B) {
	for _, depth := range []int{64, 512} {
		b.Run(fmt.Sprintf("depth=%d/workers=64", depth), func(b *testing.B) {
			x, blocks, workers := loaded(64, depth)
			out := make([]kvcache.Overlap, len(workers))
			b.ReportAllocs()
			for b.Loop() {
				x.Find(blocks, workers, out)
			}
		})
	}
}

// BenchmarkStore stores and removes one prompt of the given depth, 16 blocks an event.
func BenchmarkStore(b *testing.B) {
	for _, depth := range []int{64, 512} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			x, _, workers := loaded(8, depth)
			var stores, removals []kvcache.Event
			for from := 0; from < depth; from += 16 {
				e := stored(ids(2, depth)[from*size:(from+16)*size], span(uint64(10_000+from), 16))
				if from > 0 {
					e = child(e, uint64(10_000+from-1))
				}
				stores = append(stores, e)
				removals = append(removals, removed(e.Hashes))
			}
			b.ReportAllocs()
			for b.Loop() {
				x.Apply(workers[0], stores)
				x.Apply(workers[0], removals)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*depth), "ns/block")
		})
	}
}
