package exact_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

// Writers, readers, snapshots and removals go on beside each other while the index gives blocks up, and at no moment it
// is more than a tenth above its cap. A worker whose prompt is asked for all the time is always found with all of it.
func TestI2_ACappedIndexStaysNearItsCapWhateverComesTogether(t *testing.T) {
	const most, rounds, depth = evictingCap, evictingRounds, 50
	x := exact.NewCapped(1, most)
	prompt := func(n int) kvcache.Event {
		e := kvcache.Event{Kind: kvcache.Stored, BlockSize: 1}
		for i := range depth {
			e.Hashes, e.Tokens = append(e.Hashes, kvcache.NumberHash(uint64(n)<<8|uint64(i))), append(e.Tokens, uint32(n)<<8|uint32(i))
		}
		return e
	}
	steady := fleet.Worker{ID: 1000}
	x.Apply(steady, []kvcache.Event{prompt(0)})
	blocks, _ := kvcache.BlockHashes(nil, prompt(0).Tokens, 1, kvcache.Seed("", ""))
	var stop atomic.Bool
	var writers, readers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			who, out := fleet.Worker{ID: fleet.WorkerID(w)}, make([]kvcache.Overlap, 1)
			for n := range rounds {
				x.Find(blocks, []fleet.Worker{steady}, out) // all the time, whenever the readers get their turns
				x.Apply(who, []kvcache.Event{prompt(1 + 4*n + w), prompt(1 + n), {Kind: kvcache.Removed, Hashes: prompt(1 + n).Hashes[40:]}})
				switch n % (rounds * 3 / 5) {
				case rounds * 2 / 5:
					x.Clear(who)
				case rounds * 58 / 100:
					x.Remove(who)
				}
			}
		})
	}
	for r := range 3 {
		readers.Go(func() {
			out := make([]kvcache.Overlap, 2)
			for !stop.Load() {
				x.Find(blocks, []fleet.Worker{steady, {ID: fleet.WorkerID(r)}}, out)
				if out[0].Device != depth || out[1].Device != 0 {
					t.Errorf("found %v", out)
					return
				}
				if b := x.Bytes(); b > most+most/10 {
					t.Errorf("%d bytes of %d", b, most)
					return
				}
				if s, ok := x.Snapshot(fleet.Worker{ID: fleet.WorkerID(r)}); ok && r == 0 {
					exact.NewCapped(1, most).Restore(s.Worker, s.Rest, s.Changes)
				}
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
	if x.Evicted() == 0 {
		t.Error("nothing was evicted")
	}
}
