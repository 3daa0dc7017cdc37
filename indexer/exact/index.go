// Package exact is the index that is fed by KV events and answers exactly what a plain replay of them would.
//
// It is a trie of local block hashes. Each node has one bit set of workers per tier, and each worker has a table from
// the engine's hashes to nodes. Go's maps mix their positions with a per-process secret, so that users, who choose the
// tokens, cannot choose collisions.
//
// Invariants: a node exists while a worker holds it or it has children; a worker's bit on a node and tier is set
// exactly while at least one of its engine hashes on that tier maps to the node.
//
// Locks: holder.mu (one worker's tables, held through one of its calls) → Index.mu (the trie and the list of workers).
// A find takes Index.mu for reading only. The package starts no goroutine.
package exact

import (
	"slices"
	"sync"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/kvcache"
)

var _ indexer.Indexer = (*Index)(nil)

// clearSlice is how many blocks a clear drops before it lets others in.
const clearSlice = 1024

// Index is an indexer.Indexer for engines that report what they store. Make one with New.
type Index struct {
	blockSize int
	queries   sync.Pool // of *query

	mu      sync.RWMutex // guards all below, and every node
	root    *node
	workers map[fleet.Worker]*holder
	version uint64 // of workers: rises with each that comes or goes, from 1
	slots   int    // slots ever given out
	free    []int  // slots given back
	held    [kvcache.Tiers]int
}

// New returns an empty index for blocks of blockSize tokens.
func New(blockSize int) *Index {
	return &Index{blockSize: blockSize, root: &node{}, workers: map[fleet.Worker]*holder{}, version: 1}
}

// Apply implements indexer.Indexer.
func (x *Index) Apply(w fleet.Worker, events []kvcache.Event) kvcache.Applied {
	var res kvcache.Applied
	h := x.lockHolder(w, true)
	defer h.mu.Unlock()
	for i := range events {
		switch ev := &events[i]; ev.Kind {
		case kvcache.Stored:
			x.store(h, ev, &res)
		case kvcache.Removed:
			x.remove(h, ev, &res)
		case kvcache.Cleared:
			x.clear(h)
			res.Cleared++
			res.Degraded = false
		}
	}
	return res
}

// Clear implements indexer.Indexer.
func (x *Index) Clear(w fleet.Worker) {
	if h := x.lockHolder(w, false); h != nil {
		defer h.mu.Unlock()
		x.clear(h)
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
	x.mu.Lock()
	defer x.mu.Unlock()
	h.gone = true
	delete(x.workers, w)
	x.version++
	x.free = append(x.free, h.slot)
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
		h.tiers[t].each(func(e kvcache.EngineHash, _ *node) { list = append(list, e) })
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
	x.mu.RLock()
	h := x.workers[w]
	x.mu.RUnlock()
	if h != nil || !make {
		return h
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.workers[w]; h != nil {
		return h
	}
	slot := x.slots
	if n := len(x.free); n > 0 {
		slot, x.free = x.free[n-1], x.free[:n-1]
	} else {
		x.slots++
	}
	h = newHolder(slot)
	x.workers[w] = h
	x.version++
	return h
}

// clear drops everything of h, whose lock is held.
func (x *Index) clear(h *holder) {
	for t := range h.tiers {
		x.mu.Lock()
		n := 0
		h.tiers[t].each(func(_ kvcache.EngineHash, at *node) {
			x.release(h, kvcache.Tier(t), at)
			if n++; n%clearSlice == 0 {
				x.mu.Unlock()
				x.mu.Lock()
			}
		})
		x.mu.Unlock()
	}
	h.forget()
}
