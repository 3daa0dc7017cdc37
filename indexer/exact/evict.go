package exact

import (
	"sync"
	"sync/atomic"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

const (
	// roundShare is the part of the cap that a round of evictions frees.
	roundShare = 16
	// aheadShare is the part of the cap that is still free when a round begins. Stores that come meanwhile do a step
	// of it each; one for which there is no room does all that is left.
	aheadShare = 32
	// ticks is how often about the clock of the trie goes on while stores fill an empty index.
	ticks = 1024
	// dense is how many eighths of the memory for hashes are in use after a round.
	dense = 7
	// blockBytes is about what a block takes.
	blockBytes = 32
	// textCost is the most that a byte string takes.
	textCost = 4 * kvcache.MaxEngineHashBytes
)

// evictor keeps an index at or below its cap. A round finds the nodes of the trie that were neither stored nor found
// for longest, takes their blocks from one worker after the other, and puts what stays together.
//
// Its lock comes before all others; who waits for it holds none.
type evictor struct {
	most    int64         // bytes; 0 for no cap
	blocks  atomic.Uint64 // that were evicted
	active  atomic.Bool   // a round is under way
	trie    atomic.Int64  // bytes of the trie, as of a short while ago
	fresh   atomic.Int64  // blocks that were stored since the clock went on
	observe func(fleet.Worker, kvcache.Tier, kvcache.EngineHash)

	mu      sync.Mutex // guards all below
	cold    *runtrie.Cold
	looking bool      // cold is not done
	queue   []evictee // whose blocks were not looked at yet
	mine    []uint64  // by node, what is taken from one worker; all 0 between two
	nodes   []uint32  // those of it
}

// evictee is a worker of which blocks may go.
type evictee struct {
	worker fleet.Worker
	holder *holder
}

// Evicted is how many blocks were evicted to stay below the cap.
func (x *Index) Evicted() uint64 { return x.evict.blocks.Load() }

// GaveUp tells whether blocks of w were evicted since w began or was cleared: its engine may still hold them.
func (x *Index) GaveUp(w fleet.Worker) bool {
	h := x.lockHolder(w, false)
	if h == nil {
		return false
	}
	defer h.mu.Unlock()
	return h.evicted
}

// grew notes, with the trie's lock held, that blocks were stored.
func (x *Index) grew(blocks int) {
	e := &x.evict
	if e.most == 0 {
		return
	}
	if e.fresh.Add(int64(blocks)) >= max(16, e.most/ticks/blockBytes) {
		e.fresh.Store(0)
		x.trie.Tick()
		e.trie.Store(x.trie.Bytes())
	}
}

// makeRoom has the index stay at or below its cap when h, whose lock is held, stores hashes on a tier; the lock may be
// given away for it. It reports false when there is no room whatever goes. The holder may be gone afterwards.
func (x *Index) makeRoom(h *holder, t kvcache.Tier, hashes []kvcache.EngineHash) bool {
	e := &x.evict
	if e.most == 0 || len(hashes) == 0 {
		return true
	}
	// A table at most doubles; the trie was measured not long ago.
	if entries := h.tiers[t].entries; e.trie.Load()+x.tables.Load()+2*entryBytes(len(entries))+textCost*int64(len(hashes)) < e.most/2 {
		return true
	}
	left := x.left(h, t, hashes)
	if left >= e.most/aheadShare && !e.active.Load() {
		return true
	}
	for idle := 0; left < 0 && idle < 2; left = x.left(h, t, hashes) { // the second round in which nothing goes is the last
		before := e.blocks.Load()
		x.evictAll(h)
		if idle++; e.blocks.Load() != before {
			idle = 0
		}
		if h.gone {
			return true
		}
	}
	if left >= 0 && e.mu.TryLock() { // nobody waits for a lock of ours who has this one
		x.settle(h)
		h.mu.Unlock()
		x.evictStep()
		e.mu.Unlock()
		h.mu.Lock()
	}
	return left >= 0
}

// evictAll does what is left of a round, or a whole one. The lock of h is given away for it.
func (x *Index) evictAll(h *holder) {
	x.settle(h)
	h.mu.Unlock()
	defer h.mu.Lock()
	x.evict.mu.Lock()
	defer x.evict.mu.Unlock()
	for x.evictStep() {
	}
}

// left is how many bytes would be free when h, whose lock is held, had stored hashes on a tier. Where they are
// few, its table gets as large as there is room for.
func (x *Index) left(h *holder, t kvcache.Tier, hashes []kvcache.EngineHash) int64 {
	e, tab := &x.evict, &h.tiers[t].table
	total := x.tables.Load() + h.measure() - h.bytes
	left := e.most - total - e.trie.Load() - tab.growth(hashes)
	if left >= e.most/8 {
		return left
	}
	x.trie.Lock()
	e.trie.Store(x.trie.Bytes())
	ahead := x.trie.Ahead(len(hashes))
	x.trie.Unlock()
	grow := tab.growth(hashes)
	left = e.most - total - e.trie.Load() - ahead - grow
	if grow == 0 || left >= 0 {
		return left
	}
	size, entry := len(tab.entries), entryBytes(1024)/1024
	if more := (left + grow) / entry / 2; int(more) >= max(size/16, 2*len(hashes)) {
		tab.resize(size + int(more))
		left += grow - more*entry
	}
	return left
}

// growth is how many bytes a table grows by when hashes are put into it.
func (t *table) growth(hashes []kvcache.EngineHash) int64 {
	numbers, texts := 0, int64(0)
	for i := range hashes {
		if _, ok := hashes[i].Number(); ok {
			numbers++
		} else {
			texts += 2 * int64(len(hashes[i].Bytes())+refBytes+8)
		}
	}
	if want := t.numbers + numbers; want*5 > len(t.entries)*4 {
		return texts + entryBytes(grown(len(t.entries), want)) - entryBytes(len(t.entries))
	}
	return texts
}

// evictStep does a bounded part of a round; it reports false when the round is over. The evictor's lock is held.
func (x *Index) evictStep() (more bool) {
	e := &x.evict
	switch {
	case e.cold == nil:
		x.trie.Lock()
		e.cold = x.trie.Cold(e.most / roundShare)
		x.trie.Unlock()
		e.active.Store(true)
		e.looking = true
	case e.looking:
		x.trie.Lock()
		e.looking = e.cold.Step()
		x.trie.Unlock()
		if !e.looking {
			x.workers.Range(func(w fleet.Worker, h *holder) bool {
				e.queue = append(e.queue, evictee{w, h})
				return true
			})
		}
	case len(e.queue) > 0:
		last := len(e.queue) - 1
		who := e.queue[last]
		e.queue[last] = evictee{}
		e.queue = e.queue[:last]
		x.sweep(who)
	default:
		x.trie.Lock()
		defer x.trie.Unlock()
		x.trie.Reclaim()
		more = x.trie.Compact(dense)
		e.trie.Store(x.trie.Bytes())
		if !more {
			e.cold = nil
			e.active.Store(false)
		}
		return more
	}
	return true
}

// sweep takes the blocks in nodes that are still cold from one worker.
func (x *Index) sweep(who evictee) {
	e, h := &x.evict, who.holder
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return
	}
	defer x.verify(h)
	defer x.settle(h)
	for t := range h.tiers {
		h.tiers[t].refs(e.choose)
	}
	x.dropNodes(h)
	h.tip = tip{}
	for t := range h.tiers {
		tab := &h.tiers[t]
		hashes := tab.goners(e.takes)
		for _, hash := range hashes {
			e.tell(h, who.worker, kvcache.Tier(t), hash)
		}
		tab.purge(hashes, e.takes)
	}
	if e.cold.Everything() && h.opaque.size() > 0 {
		h.opaque.each(func(hash kvcache.EngineHash, on runtrie.Ref) {
			for t := range kvcache.Tier(kvcache.Tiers) {
				if on&(1<<t) != 0 {
					e.tell(h, who.worker, t, hash)
				}
			}
		})
		h.opaque = opaque{}
	}
	for _, id := range e.nodes {
		e.mine[id/64] = 0
	}
	e.nodes = e.nodes[:0]
}

func (e *evictor) tell(h *holder, w fleet.Worker, t kvcache.Tier, hash kvcache.EngineHash) {
	h.evicted = true
	e.blocks.Add(1)
	if e.observe != nil {
		e.observe(w, t, hash)
	}
}

// choose notes the node of a block that a worker has, if it is cold.
func (e *evictor) choose(at runtrie.Ref) {
	id, _ := at.Node()
	if !e.cold.Has(id) || e.takes(at) {
		return
	}
	if n := int(id/64) + 1 - len(e.mine); n > 0 {
		e.mine = append(e.mine, make([]uint64, n)...)
	}
	e.mine[id/64] |= 1 << (id % 64)
	e.nodes = append(e.nodes, id)
}

// takes tells whether a block's node was chosen.
func (e *evictor) takes(at runtrie.Ref) bool {
	id, _ := at.Node()
	return int(id/64) < len(e.mine) && e.mine[id/64]>>(id%64)&1 != 0
}

// dropNodes takes the chosen nodes from h, but for those that were used meanwhile.
func (x *Index) dropNodes(h *holder) {
	e, all := &x.evict, runtrie.Positions(0, runtrie.Run)
	x.trie.Lock()
	defer x.trie.Unlock()
	for i, id := range e.nodes {
		if i%32 == 31 {
			x.trie.Unlock()
			x.trie.Lock()
		}
		if !e.cold.Still(id) { // h holds it, so that it is no other one
			e.mine[id/64] &^= 1 << (id % 64)
			continue
		}
		for t := range h.tiers {
			if own := h.tiers[t].own; own != nil && x.trie.Positions(id, own) != (runtrie.Mask{}) {
				x.drop(h, kvcache.Tier(t), id, all)
			}
		}
	}
	e.trie.Store(x.trie.Bytes())
}
