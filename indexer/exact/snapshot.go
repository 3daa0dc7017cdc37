package exact

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/kvcache"
)

// Workers implements indexer.Indexer.
func (x *Index) Workers() []fleet.Worker {
	x.mu.RLock()
	list := slices.Collect(maps.Keys(x.workers))
	x.mu.RUnlock()
	slices.SortFunc(list, func(a, b fleet.Worker) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Rank, b.Rank)) })
	return list
}

// Snapshot implements indexer.Indexer. A node's parent, content and salt never change, so that the copied tables can
// be followed while the index goes on.
func (x *Index) Snapshot(w fleet.Worker) (indexer.Snapshot, bool) {
	h := x.lockHolder(w, false)
	if h == nil {
		return indexer.Snapshot{}, false
	}
	var copied [kvcache.Tiers][]holding
	for t := range h.tiers {
		copied[t] = make([]holding, 0, h.tiers[t].size())
		h.tiers[t].each(func(e kvcache.EngineHash, at *node) { copied[t] = append(copied[t], holding{e, at}) })
	}
	rest := h.rest()
	h.mu.Unlock()
	for t := range rest.Opaque {
		slices.SortFunc(rest.Opaque[t], kvcache.EngineHash.Compare)
	}
	slices.Sort(rest.Others)
	return indexer.Snapshot{Worker: w, Rest: rest, Changes: func(yield func(indexer.Change) bool) {
		newUnroll(x.root, &copied, &rest).all(yield)
	}}, true
}

// rest copies what is known beside the blocks; h.mu is held.
func (h *holder) rest() indexer.Rest {
	r := indexer.Rest{MainKnown: h.mainKnown, Main: h.main, Others: slices.Collect(maps.Keys(h.others)), Full: h.full}
	for e, tiers := range h.opaque {
		for t := range r.Opaque {
			if tiers&(1<<t) != 0 {
				r.Opaque[t] = append(r.Opaque[t], e)
			}
		}
	}
	return r
}

// Restore implements indexer.Indexer.
func (x *Index) Restore(w fleet.Worker, rest indexer.Rest, changes iter.Seq[indexer.Change]) (lost int) {
	h := x.lockHolder(w, true)
	defer h.mu.Unlock()
	for c := range changes {
		if len(c.Removed) > 0 {
			x.takeOut(h, c.Tier, c.Removed)
		} else if !x.putIn(h, &c) {
			lost += len(c.Blocks)
		}
	}
	for t, hashes := range rest.Opaque {
		for _, e := range hashes {
			h.opaque[e] |= 1 << t
		}
	}
	h.mainKnown, h.main, h.full = rest.MainKnown, rest.Main, rest.Full
	for _, g := range rest.Others {
		h.learn(g)
	}
	return lost
}

// putIn gives the blocks of a change to h, whose lock is held. It reports false when their parent is not known.
func (x *Index) putIn(h *holder, c *indexer.Change) bool {
	at, salt := x.root, c.Salt
	if c.HasParent {
		if at = h.find(c.Tier, c.Parent); at == nil {
			return false
		}
		salt = at.salt
	}
	tab := &h.tiers[c.Tier]
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range c.Blocks {
		at = at.grow(b.Local, salt)
		x.replace(h, c.Tier, tab.get(b.Hash), at)
		tab.put(b.Hash, at)
	}
	return true
}

// takeOut drops hashes of h, whose lock is held.
func (x *Index) takeOut(h *holder, tier kvcache.Tier, hashes []kvcache.EngineHash) {
	tab := &h.tiers[tier]
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range hashes {
		if at := tab.get(e); at != nil {
			tab.drop(e)
			x.release(h, tier, at)
		}
	}
}
