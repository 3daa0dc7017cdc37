package exact

import (
	"slices"

	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// store applies a store for h, whose lock is held.
func (x *Index) store(h *holder, ev *kvcache.Event, res *kvcache.Applied) {
	n := len(ev.Hashes)
	if n == 0 {
		return
	}
	if reason, ok := x.check(h, ev); !ok {
		res.Drops[reason] += uint64(n)
		switch reason {
		case kvcache.DropBlockSizeMismatch:
			res.Degraded = true
		case kvcache.DropPartialBlock, kvcache.DropNotDense:
			x.markOpaque(h, ev.Tier, ev.Hashes)
		}
		return
	}
	if len(ev.Tokens) == 0 {
		x.announce(h, ev, res)
		return
	}
	parent, salt, reason, ok := x.parent(h, ev)
	if !ok {
		res.Drops[reason] += uint64(n)
		switch reason {
		case kvcache.DropUnknownParent:
			res.Degraded = true
		case kvcache.DropEvictedParent:
		default:
			x.markOpaque(h, ev.Tier, ev.Hashes)
		}
		return
	}
	if ev.Opaque && ev.OpaqueFrom < n {
		n = max(0, ev.OpaqueFrom)
		res.Drops[kvcache.DropMultimodal] += uint64(len(ev.Hashes) - n)
		x.markOpaque(h, ev.Tier, ev.Hashes[n:])
	}
	how := kvcache.Hashing{Seed: kvcache.AdapterSeed(ev.Adapter) + salt, Bigram: ev.Bigram, Items: ev.Items}
	h.hashes, _ = how.Blocks(h.hashes, ev.Tokens, x.blockSize) // the block size was checked
	if err := x.insert(h, ev.Tier, parent, salt, ev.Hashes[:n], h.hashes[:n]); err != nil {
		res.Drops[kvcache.DropIndexFull] += uint64(n)
		res.Degraded = true
		return
	}
	res.Stored += n
	h.full = true
	if x.stored != nil {
		x.stored(h.who, ev.Tier, h.hashes[:n])
	}
}

// check applies the rules that need no parent. An event that passes either has no tokens and names known blocks, or
// has exactly the tokens of its blocks.
func (x *Index) check(h *holder, ev *kvcache.Event) (kvcache.DropReason, bool) {
	if reason, ok := h.admit(ev); !ok {
		return reason, false
	}
	if h.repeats(ev.Hashes) {
		return kvcache.DropDuplicateInList, false
	}
	if ev.HasParent && slices.Contains(ev.Hashes, ev.Parent) {
		return kvcache.DropSelfParent, false
	}
	if ev.BlockSize == 0 && len(ev.Tokens) == 0 {
		return 0, true
	}
	window := 0
	if ev.Bigram {
		window = 1
	}
	switch {
	case ev.BlockSize == 0:
		return kvcache.DropNotDense, false
	case ev.BlockSize < x.blockSize && len(ev.Hashes) == 1 && len(ev.Tokens) == ev.BlockSize+window && h.full:
		return kvcache.DropPartialBlock, false
	case ev.BlockSize != x.blockSize:
		return kvcache.DropBlockSizeMismatch, false
	case len(ev.Tokens) != len(ev.Hashes)*x.blockSize+window:
		return kvcache.DropNotDense, false
	}
	return 0, true
}

// parent returns the block behind which a store begins, and the salt of its chain.
func (x *Index) parent(h *holder, ev *kvcache.Event) (at runtrie.Ref, salt uint64, reason kvcache.DropReason, ok bool) {
	salt = kvcache.SaltSeed(ev.Salt)
	if !ev.HasParent {
		return 0, salt, 0, true
	}
	at = h.find(ev.Tier, ev.Parent)
	switch {
	case at == 0 && h.opaque.on(ev.Parent) != 0:
		return 0, 0, kvcache.DropOpaqueParent, false
	case at == 0 && h.evicted:
		return 0, 0, kvcache.DropEvictedParent, false
	case at == 0:
		return 0, 0, kvcache.DropUnknownParent, false
	}
	chain := x.salt(at)
	if ev.Salt != "" && salt != chain {
		return 0, 0, kvcache.DropConflictingSalt, false
	}
	return at, chain, 0, true
}

// salt is what the cache salt of a held block's chain adds to the seed.
func (x *Index) salt(at runtrie.Ref) uint64 {
	if !x.trie.Salted() {
		return 0
	}
	id, _ := at.Node()
	x.trie.Lock()
	defer x.trie.Unlock()
	return x.trie.Salt(id)
}

// insert gives blocks behind another to h, by the hashes of the engine and of their content.
func (x *Index) insert(h *holder, t kvcache.Tier, behind runtrie.Ref, salt uint64, hashes []kvcache.EngineHash, blocks []kvcache.BlockHash) error {
	tab := &h.tiers[t]
	tab.room(hashes...)
	olds := h.olds[:0]
	for _, e := range hashes {
		at, place := tab.get(e)
		olds = append(olds, slot{at, place})
	}
	h.olds = olds
	x.trie.Lock()
	err := x.open(h, t)
	if err == nil {
		h.path, err = x.trie.Grow(h.path[:0], behind, salt, blocks)
	}
	if err != nil {
		x.trie.Unlock()
		return err
	}
	h.had = h.had[:0]
	for _, s := range h.path {
		h.had = append(h.had, x.hold(h, t, s))
	}
	x.trie.Compact(sparse)
	x.grew(len(blocks))
	x.trie.Unlock()
	i := 0
	for k, s := range h.path {
		had := h.had[k]
		for pos := s.From; pos < s.To; pos++ {
			at, old := runtrie.RefOf(s.Node, pos), &olds[i]
			tab.mean(hashes[i], *old, at, had.Has(pos))
			if old.at == at {
				old.at = 0 // nothing to let go of
			}
			i++
		}
	}
	if h.opaque.size() > 0 {
		for _, e := range hashes {
			h.opaque.clear(t, e)
		}
	}
	// What is new is held and meant by now, so that nothing on the way to it can vanish.
	for _, old := range olds {
		if old.at != 0 {
			h.release(t, old.at)
		}
	}
	h.reach(t, hashes)
	x.letGo(h, t)
	return nil
}

// reach notes where a store ended whose path is the last one.
func (h *holder) reach(t kvcache.Tier, hashes []kvcache.EngineHash) {
	if len(hashes) == 0 {
		h.tip = tip{}
		return
	}
	end := h.path[len(h.path)-1]
	h.tip = tip{hashes[len(hashes)-1], t, runtrie.RefOf(end.Node, end.To-1)}
}

// mean gives a hash, that was looked up, another block; more is whether the tier had it already.
func (t *table) mean(e kvcache.EngineHash, was slot, at runtrie.Ref, more bool) {
	if was.at == at {
		return
	}
	if more {
		t.extra.Put(at, t.extra.Get(at)+1)
	}
	t.put(e, was.place, at)
}

// announce puts known blocks on one more tier.
func (x *Index) announce(h *holder, ev *kvcache.Event, res *kvcache.Applied) {
	x.trie.Lock()
	defer x.trie.Unlock()
	tab := &h.tiers[ev.Tier]
	tab.room(ev.Hashes...)
	for _, e := range ev.Hashes {
		at := h.find(ev.Tier, e)
		if at == 0 {
			res.Drops[h.unknown(kvcache.DropUnknownPlaceholder)]++
			continue
		}
		if err := x.open(h, ev.Tier); err != nil {
			res.Drops[kvcache.DropIndexFull]++
			res.Degraded = true
			continue
		}
		x.move(h, ev.Tier, e, at)
		h.opaque.clear(ev.Tier, e)
		res.Stored++
	}
	x.flush(h, ev.Tier)
}

// move gives one hash a block that is held, or will be. The trie's lock is held.
func (x *Index) move(h *holder, t kvcache.Tier, e kvcache.EngineHash, at runtrie.Ref) {
	old, place := h.tiers[t].get(e)
	if old == at {
		return
	}
	id, pos := at.Node()
	x.trie.Use(id)
	had := x.hold(h, t, runtrie.Stretch{Node: id, From: pos, To: pos + 1})
	h.tiers[t].mean(e, slot{old, place}, at, had.Has(pos))
	if old != 0 {
		h.release(t, old)
	}
}

// remove applies a removal for h, whose lock is held.
func (x *Index) remove(h *holder, ev *kvcache.Event, res *kvcache.Applied) {
	if reason, ok := h.admitRemoval(ev); !ok {
		res.Drops[reason] += uint64(len(ev.Hashes))
		return
	}
	tab := &h.tiers[ev.Tier]
	for _, e := range ev.Hashes {
		at := tab.take(e)
		switch {
		case at != 0:
			h.release(ev.Tier, at)
			res.Removed++
		case h.opaque.on(e)&(1<<ev.Tier) != 0:
			h.opaque.clear(ev.Tier, e)
		default:
			res.Drops[h.unknown(kvcache.DropUnknownRemove)]++
		}
	}
	x.letGo(h, ev.Tier)
}

// letGo takes what was released on a tier out of the trie, and memory back.
func (x *Index) letGo(h *holder, t kvcache.Tier) {
	if len(h.free) == 0 {
		return
	}
	x.trie.Lock()
	x.flush(h, t)
	x.trie.Compact(sparse)
	x.trie.Unlock()
	h.tiers[t].shrink()
}

// markOpaque notes hashes that the engine holds and the index cannot. What they meant before is void.
func (x *Index) markOpaque(h *holder, tier kvcache.Tier, hashes []kvcache.EngineHash) {
	tab := &h.tiers[tier]
	for _, e := range hashes {
		if at := tab.take(e); at != 0 {
			h.release(tier, at)
		}
		h.opaque.mark(tier, e)
	}
	x.letGo(h, tier)
}
