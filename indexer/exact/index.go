// Package exact is the index that is fed by KV events and answers exactly what a plain replay of them would.
//
// What is held is in a runtrie.Trie, and each worker has, for each tier, a table from the engine's hashes to its
// blocks. A tier has a holder of its own in the trie, and one of all that it or a faster tier has: a find asks for
// those, and has each tier's reach at once.
//
// Invariants: a tier's holder holds exactly the blocks that some hash of the tier's table means; extra has, of each
// block that several mean, how many more than one.
//
// Locks: evictor.mu (a step of making room, taken with no other held) → holder.mu (one worker's tables, held through
// one of its calls) → the trie's (some microseconds at a time) or roster.mu. A find takes none. The package starts no
// goroutine.
package exact

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

var _ indexer.Indexer = (*Index)(nil)

// sparse is how many eighths of the memory for hashes must be in use; else it is made denser.
const sparse = 4

// slice is how many nodes are gone through before others are let in.
const slice = 64

// nodesAhead is of how many nodes that are gone through the memory is read at once.
const nodesAhead = 16

// Index is an indexer.Indexer for engines that report what they store. Make one with New.
type Index struct {
	blockSize int
	trie      *runtrie.Trie
	queries   sync.Pool // of *query
	stored    func(w fleet.Worker, t kvcache.Tier, blocks []kvcache.BlockHash)

	workers *roster
	version atomic.Uint64 // rises after each worker or slot that comes, and before each that goes
	tables  atomic.Int64  // bytes of all holders
	evict   evictor
}

// New returns an empty index for blocks of blockSize tokens.
func New(blockSize int) *Index { return newIndex(blockSize, runtrie.MaxNodes) }

// NewCapped returns an empty index that stays at or below maxBytes of memory, as Bytes tells it: blocks that were
// neither stored nor found for longest give way to new ones. A worker whose block gave way does not have it in a Find any
// more, until its engine stores it anew; what is stored behind such a block is dropped and counted as
// kvcache.DropEvictedParent. Where not even that makes room, as below about 1 MiB, a store is dropped and counted as
// kvcache.DropIndexFull. 0 is no cap.
func NewCapped(blockSize int, maxBytes int64) *Index {
	x := New(blockSize)
	x.evict.most = maxBytes
	return x
}

func newIndex(blockSize int, nodes uint32) *Index {
	x := &Index{blockSize: blockSize, trie: runtrie.New(nodes), workers: newRoster()}
	x.version.Store(1)
	return x
}

// OnStored has do called with the local hashes of what each store of an event puts on a tier, once it is found there. It
// is for the time before the index is used. do is called in w's Apply: it may call Find, and nothing else that is for w;
// it must not keep blocks.
func (x *Index) OnStored(do func(w fleet.Worker, t kvcache.Tier, blocks []kvcache.BlockHash)) {
	x.stored = do
}

// Apply implements indexer.Indexer.
func (x *Index) Apply(w fleet.Worker, events []kvcache.Event) (res kvcache.Applied) {
	h := x.lockHolder(w, true)
	defer h.mu.Unlock()
	x.apply(h, events, &res)
	x.settle(h)
	x.verify(h)
	return res
}

// apply applies events for h, whose lock is held.
func (x *Index) apply(h *holder, events []kvcache.Event, res *kvcache.Applied) {
	x.touch(h, events)
	for i := range events {
		switch ev := &events[i]; ev.Kind {
		case kvcache.Stored:
			if !x.makeRoom(h, ev.Tier, ev.Hashes) {
				res.Drops[kvcache.DropIndexFull] += uint64(len(ev.Hashes))
				res.Degraded = true
				continue
			}
			if h.gone {
				return
			}
			x.store(h, ev, res)
		case kvcache.Removed:
			x.remove(h, ev, res)
		case kvcache.Cleared:
			x.clear(h)
			res.Cleared++
			res.Degraded = false
		}
	}
}

// Clear implements indexer.Indexer.
func (x *Index) Clear(w fleet.Worker) {
	if h := x.lockHolder(w, false); h != nil {
		defer h.mu.Unlock()
		x.clear(h)
		x.settle(h)
		x.verify(h)
	}
}

// Remove implements indexer.Indexer.
func (x *Index) Remove(w fleet.Worker) {
	h := x.lockHolder(w, false)
	if h == nil {
		return
	}
	defer h.mu.Unlock()
	x.clear(h)
	h.gone = true
	x.settle(h)
	x.workers.Delete(w)
	x.version.Add(1)
}

// Blocks implements indexer.Indexer.
func (x *Index) Blocks(w fleet.Worker) kvcache.TierCounts {
	var counts kvcache.TierCounts
	if h := x.lockHolder(w, false); h != nil {
		defer h.mu.Unlock()
		for t := range h.tiers {
			counts[t] = h.tiers[t].size()
		}
	}
	return counts
}

// Hashes implements indexer.Indexer.
func (x *Index) Hashes(w fleet.Worker) map[kvcache.Tier][]kvcache.EngineHash {
	all := map[kvcache.Tier][]kvcache.EngineHash{}
	h := x.lockHolder(w, false)
	if h == nil {
		return all
	}
	defer h.mu.Unlock()
	for t := range h.tiers {
		list := make([]kvcache.EngineHash, 0, h.tiers[t].size())
		h.tiers[t].each(func(e kvcache.EngineHash, _ runtrie.Ref) { list = append(list, e) })
		if len(list) > 0 {
			slices.SortFunc(list, kvcache.EngineHash.Compare)
			all[kvcache.Tier(t)] = list
		}
	}
	return all
}

// lockHolder returns the holder of w with its lock held, or nil when w is unknown and make is not set.
func (x *Index) lockHolder(w fleet.Worker, make bool) *holder {
	for {
		h := x.holder(w, make)
		if h == nil {
			return nil
		}
		h.mu.Lock()
		if !h.gone {
			return h
		}
		h.mu.Unlock()
	}
}

func (x *Index) holder(w fleet.Worker, make bool) *holder {
	h := x.workers.Load(w)
	if h == nil && make {
		var was bool
		if h, was = x.workers.LoadOrStore(w); !was {
			x.version.Add(1)
		}
	}
	return h
}

// touch reads what the events will look up in the tables.
func (x *Index) touch(h *holder, events []kvcache.Event) {
	if len(events) == 1 && len(events[0].Hashes) == 1 {
		return // there is nothing to overlap
	}
	sum := uint32(0)
	for i := range events {
		if ev := &events[i]; ev.Kind != kvcache.Cleared {
			sum += h.tiers[ev.Tier].touch(ev.Hashes)
		}
	}
	h.touched += sum
}

// clear drops everything of h, whose lock is held.
func (x *Index) clear(h *holder) {
	x.close(h)
	h.forget()
}
