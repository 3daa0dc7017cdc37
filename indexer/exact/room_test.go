package exact_test

import (
	"slices"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// What there is no room for is counted and makes its rank untrusted; what is there stays,
// and there is room again when it is gone.
func TestAnIndexWithoutRoomSaysSo(t *testing.T) {
	x := exact.NewSmall(size, 4) // the root and three
	for i := range uint64(3) {
		apply(t, x, w1, none(), stored(ids(10*int(i+1), 2), span(10*i, 2)))
	}
	full := stored(ids(70, runtrie.Run+1), span(100, runtrie.Run+1))
	for _, e := range []kvcache.Event{full, stored(ids(80, 1), span(200, 1)), child(stored(ids(90, 1), span(300, 1)), 0)} {
		got := x.Apply(w2, []kvcache.Event{{Kind: kvcache.Stored, Hashes: numbers(0), Tokens: ids(10, 1), BlockSize: size}, e})
		if n := uint64(len(e.Hashes)); got.Drops[kvcache.DropIndexFull] != n || !got.Degraded || got.Stored != 1 {
			t.Errorf("got %+v, want %d blocks dropped", got, n)
		}
	}
	if n := x.Blocks(w2)[kvcache.Device]; n != 1 || x.Nodes() != 3 {
		t.Errorf("%d blocks in %d nodes", n, x.Nodes())
	}
	for i := range 3 {
		if got := device(t, x, w1, ids(10*(i+1), 3)); got != 2 {
			t.Errorf("prompt %d: %d blocks", i, got)
		}
	}
	x.Clear(w1)
	x.Clear(w2)
	apply(t, x, w2, none(), full)
	if got := device(t, x, w2, ids(70, runtrie.Run+1)); got != runtrie.Run+1 {
		t.Errorf("%d blocks after there was room", got)
	}
}

// What is larger than the cap does not fit, whatever goes for it.
func TestAStoreLargerThanTheCapIsDroppedAndCounted(t *testing.T) {
	const most, blocks = 256 << 10, 64 << 10
	x := exact.NewCapped(size, most)
	got := x.Apply(w1, []kvcache.Event{stored(ids(1, blocks), span(1, blocks))})
	if got.Drops[kvcache.DropIndexFull] != blocks || !got.Degraded || got.Stored != 0 {
		t.Errorf("got %+v", got)
	}
	if n := x.Bytes(); n > most || x.Blocks(w1)[kvcache.Device] != 0 {
		t.Errorf("%d bytes of %d, %v", n, most, x.Blocks(w1))
	}
	apply(t, x, w1, none(), stored(ids(10, 2), span(10, 2)))
	if n := device(t, x, w1, ids(10, 2)); n != 2 {
		t.Errorf("%d blocks of a store that fits", n)
	}
}

// Whatever was held, nothing is left of it.
func TestEverythingThatIsGoneIsGivenBack(t *testing.T) {
	x := exact.New(size)
	for round := range 3 {
		for i := range 40 {
			w := fleet.Worker{ID: fleet.WorkerID(i)}
			for n := range uint64(5) {
				e := stored(ids(1+int(n), 50*(1+i%3)), span(1000*n, uint64(50*(1+i%3))))
				e.Tier = kvcache.Tier(n % kvcache.Tiers)
				x.Apply(w, []kvcache.Event{e})
			}
		}
		for i := range 40 {
			w := fleet.Worker{ID: fleet.WorkerID(i)}
			switch (i + round) % 3 {
			case 0:
				x.Clear(w)
			case 1:
				x.Remove(w)
			default:
				for tier, hashes := range x.Hashes(w) {
					for part := range slices.Chunk(hashes, 16) {
						x.Apply(w, []kvcache.Event{{Kind: kvcache.Removed, Hashes: part, Tier: tier}})
					}
				}
			}
		}
		if n := x.Nodes(); n != 0 {
			t.Fatalf("round %d: %d nodes are left", round, n)
		}
	}
}

// A change that names one hash twice, as no snapshot does, means the last one by it.
func TestARestoredNameThatStandsTwiceMeansTheLast(t *testing.T) {
	x := exact.New(size)
	blocks, _ := kvcache.BlockHashes(nil, ids(1, 3), size, kvcache.Seed("", ""))
	change := indexer.Change{Blocks: []indexer.Block{{Hash: kvcache.NumberHash(5), Local: blocks[0]}, {Hash: kvcache.NumberHash(6), Local: blocks[1]}, {Hash: kvcache.NumberHash(5), Local: blocks[2]}}}
	if lost := x.Restore(w1, indexer.Rest{}, slices.Values([]indexer.Change{change})); lost != 0 {
		t.Errorf("%d blocks lost", lost)
	}
	if n := x.Blocks(w1)[kvcache.Device]; n != 2 {
		t.Errorf("%d blocks", n)
	}
	if got := device(t, x, w1, ids(1, 3)); got != 0 { // the first one is held no more
		t.Errorf("%d leading blocks", got)
	}
	apply(t, x, w1, none(), removed(numbers(5, 6)))
	if n := x.Nodes(); n != 0 {
		t.Errorf("%d nodes are left", n)
	}
}
