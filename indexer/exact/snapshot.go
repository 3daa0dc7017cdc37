package exact

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// Workers implements indexer.Indexer.
func (x *Index) Workers() []fleet.Worker {
	var list []fleet.Worker
	x.workers.Range(func(w fleet.Worker, _ *holder) bool {
		list = append(list, w)
		return true
	})
	slices.SortFunc(list, func(a, b fleet.Worker) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Rank, b.Rank)) })
	return list
}

// Snapshot implements indexer.Indexer. The tables and the paths of what they mean are copied, so that they can be
// followed while the index goes on.
func (x *Index) Snapshot(w fleet.Worker) (indexer.Snapshot, bool) {
	h := x.lockHolder(w, false)
	if h == nil {
		return indexer.Snapshot{}, false
	}
	copied, p := x.copyTables(h)
	rest := h.rest()
	h.mu.Unlock()
	for t := range rest.Opaque {
		slices.SortFunc(rest.Opaque[t], kvcache.EngineHash.Compare)
	}
	slices.Sort(rest.Others)
	return indexer.Snapshot{Worker: w, Rest: rest, Changes: func(yield func(indexer.Change) bool) {
		newUnroll(p, copied, &rest).all(yield)
	}}, true
}

// copyTables copies the tables of h, whose lock is held, with the paths of what they mean.
func (x *Index) copyTables(h *holder) (*[kvcache.Tiers][]holding, *paths) {
	c := copier{trie: x.trie, first: map[uint32]place{}, need: map[uint32]uint32{}}
	for t := range h.tiers {
		h.tiers[t].each(func(_ kvcache.EngineHash, at runtrie.Ref) {
			id, pos := at.Node()
			c.need[id] = max(c.need[id], pos+1)
		})
	}
	x.trie.Lock()
	c.nodes()
	x.trie.Unlock()
	var copied [kvcache.Tiers][]holding
	for t := range h.tiers {
		copied[t] = make([]holding, 0, h.tiers[t].size())
		h.tiers[t].each(func(e kvcache.EngineHash, at runtrie.Ref) {
			id, pos := at.Node()
			copied[t] = append(copied[t], holding{e, c.first[id] + place(pos)})
		})
	}
	return &copied, &c.paths
}

// copier copies the nodes that a worker has something of, and those above them.
type copier struct {
	trie  *runtrie.Trie
	need  map[uint32]uint32 // by node, how many leading blocks
	first map[uint32]place  // by node that was copied, the place of its first block
	paths paths
}

// nodes copies all nodes. The trie's lock is held, and given to others now and then.
func (c *copier) nodes() {
	climbed := make(map[uint32]bool, len(c.need))
	for _, id := range slices.Collect(maps.Keys(c.need)) {
		for !climbed[id] {
			climbed[id] = true
			up, attach := c.trie.Above(id)
			if up == 0 {
				break
			}
			c.need[up] = max(c.need[up], attach)
			id = up
		}
	}
	n := 0
	for _, id := range slices.Sorted(maps.Keys(c.need)) {
		c.node(id)
		if n++; n%slice == 0 {
			c.trie.Unlock()
			c.trie.Lock()
		}
	}
}

// node copies a node behind those above it.
func (c *copier) node(id uint32) {
	var climb []uint32
	for _, done := c.first[id]; !done && id != 0; _, done = c.first[id] {
		climb = append(climb, id)
		id, _ = c.trie.Above(id)
	}
	for _, id := range slices.Backward(climb) {
		c.copy(id)
	}
}

func (c *copier) copy(id uint32) {
	p, above := &c.paths, root
	if up, attach := c.trie.Above(id); up != 0 {
		above = c.first[up] + place(attach) - 1
	}
	c.first[id] = place(len(p.blocks))
	salt := c.trie.Salt(id)
	if salt != 0 && p.salts == nil {
		p.salts = make([]uint64, len(p.blocks))
	}
	for _, b := range c.trie.Blocks(id)[:c.need[id]] {
		p.above = append(p.above, above)
		above = place(len(p.blocks))
		p.blocks = append(p.blocks, b)
		if p.salts != nil {
			p.salts = append(p.salts, salt)
		}
	}
}

// rest copies what is known beside the blocks; h.mu is held.
func (h *holder) rest() indexer.Rest {
	r := indexer.Rest{MainKnown: h.mainKnown, Main: h.main, Others: slices.Collect(maps.Keys(h.others)), Full: h.full, Evicted: h.evicted}
	h.opaque.each(func(e kvcache.EngineHash, on runtrie.Ref) {
		for t := range r.Opaque {
			if on&(1<<t) != 0 {
				r.Opaque[t] = append(r.Opaque[t], e)
			}
		}
	})
	return r
}

// Restore implements indexer.Indexer.
func (x *Index) Restore(w fleet.Worker, rest indexer.Rest, changes iter.Seq[indexer.Change]) (lost int) {
	h := x.lockHolder(w, true)
	defer h.mu.Unlock()
	defer x.verify(h)
	defer x.settle(h)
	for c := range changes {
		if len(c.Removed) > 0 {
			x.takeOut(h, c.Tier, c.Removed)
		} else if h.gone || !x.makeRoom(h, c.Tier, namesOf(h, &c)) || h.gone || !x.putIn(h, &c) {
			lost += len(c.Blocks)
		}
	}
	if h.gone {
		return lost
	}
	h.evicted = h.evicted || rest.Evicted
	for t, hashes := range rest.Opaque {
		for _, e := range hashes {
			h.opaque.mark(kvcache.Tier(t), e)
		}
	}
	h.mainKnown, h.main, h.full = rest.MainKnown, rest.Main, rest.Full
	for _, g := range rest.Others {
		h.learn(g)
	}
	return lost
}

// putIn gives the blocks of a change to h, whose lock is held. It reports false when their parent is not known, or the
// index has no room.
func (x *Index) putIn(h *holder, c *indexer.Change) bool {
	behind, salt := runtrie.Ref(0), c.Salt
	if c.HasParent {
		if behind = h.find(c.Tier, c.Parent); behind == 0 {
			return false
		}
		salt = x.salt(behind)
	}
	namesOf(h, c)
	h.hashes = h.hashes[:0]
	for _, b := range c.Blocks {
		h.hashes = append(h.hashes, b.Local)
	}
	if !h.repeats(h.names) {
		return x.insert(h, c.Tier, behind, salt, h.names, h.hashes) == nil
	}
	for i := range h.names { // the last one of a name counts
		if x.insert(h, c.Tier, behind, salt, h.names[i:i+1], h.hashes[i:i+1]) != nil {
			return false
		}
		s := h.path[0]
		behind = runtrie.RefOf(s.Node, s.From)
	}
	return true
}

// namesOf collects the hashes of a change.
func namesOf(h *holder, c *indexer.Change) []kvcache.EngineHash {
	h.names = h.names[:0]
	for _, b := range c.Blocks {
		h.names = append(h.names, b.Hash)
	}
	return h.names
}

// takeOut drops hashes of h, whose lock is held.
func (x *Index) takeOut(h *holder, tier kvcache.Tier, hashes []kvcache.EngineHash) {
	for _, e := range hashes {
		if at := h.tiers[tier].take(e); at != 0 {
			h.release(tier, at)
		}
	}
	x.letGo(h, tier)
}
