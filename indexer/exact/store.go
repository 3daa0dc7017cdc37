package exact

import (
	"slices"

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
	parent, reason, ok := x.parent(h, ev)
	if !ok {
		res.Drops[reason] += uint64(n)
		if reason == kvcache.DropUnknownParent {
			res.Degraded = true
		} else {
			x.markOpaque(h, ev.Tier, ev.Hashes)
		}
		return
	}
	if ev.Opaque && ev.OpaqueFrom < n {
		n = max(0, ev.OpaqueFrom)
		res.Drops[kvcache.DropMultimodal] += uint64(len(ev.Hashes) - n)
		x.markOpaque(h, ev.Tier, ev.Hashes[n:])
	}
	x.insert(h, ev, parent, n)
	res.Stored += n
	h.full = true
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

// parent returns the node below which a store begins.
func (x *Index) parent(h *holder, ev *kvcache.Event) (*node, kvcache.DropReason, bool) {
	if !ev.HasParent {
		return x.root, 0, true
	}
	at := h.find(ev.Tier, ev.Parent)
	switch {
	case at != nil && ev.Salt != "" && kvcache.SaltSeed(ev.Salt) != at.salt:
		return nil, kvcache.DropConflictingSalt, false
	case at != nil:
		return at, 0, true
	case h.opaque[ev.Parent] != 0:
		return nil, kvcache.DropOpaqueParent, false
	}
	return nil, kvcache.DropUnknownParent, false
}

// insert gives the first n blocks of a store to h.
func (x *Index) insert(h *holder, ev *kvcache.Event, parent *node, n int) {
	salt := parent.salt
	if !ev.HasParent {
		salt = kvcache.SaltSeed(ev.Salt)
	}
	seed := kvcache.AdapterSeed(ev.Adapter) + salt
	hash := kvcache.BlockHashes
	if ev.Bigram {
		hash = kvcache.BigramBlockHashes
	}
	h.hashes, _ = hash(h.hashes, ev.Tokens, x.blockSize, seed) // the block size was checked
	tab := &h.tiers[ev.Tier]
	h.olds, h.nodes = h.olds[:0], h.nodes[:0]
	for _, e := range ev.Hashes[:n] {
		h.olds = append(h.olds, tab.get(e))
	}
	x.mu.Lock()
	at := parent
	for i := range n {
		at = at.grow(h.hashes[i], salt)
		h.nodes = append(h.nodes, at)
		x.replace(h, ev.Tier, h.olds[i], at)
	}
	x.mu.Unlock()
	for i, e := range ev.Hashes[:n] {
		if h.olds[i] != h.nodes[i] {
			tab.put(e, h.nodes[i])
		}
		h.clearOpaque(ev.Tier, e)
	}
	clear(h.olds) // keep no node alive
	clear(h.nodes)
}

// announce puts known blocks on one more tier.
func (x *Index) announce(h *holder, ev *kvcache.Event, res *kvcache.Applied) {
	tab := &h.tiers[ev.Tier]
	for _, e := range ev.Hashes {
		at := h.find(ev.Tier, e)
		if at == nil {
			res.Drops[kvcache.DropUnknownPlaceholder]++
			continue
		}
		x.mu.Lock()
		x.replace(h, ev.Tier, tab.get(e), at)
		x.mu.Unlock()
		tab.put(e, at)
		res.Stored++
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
		at := tab.get(e)
		switch {
		case at != nil:
			tab.drop(e)
			x.mu.Lock()
			x.release(h, ev.Tier, at)
			x.mu.Unlock()
			res.Removed++
		case h.opaque[e]&(1<<ev.Tier) != 0:
			h.clearOpaque(ev.Tier, e)
		default:
			res.Drops[kvcache.DropUnknownRemove]++
		}
	}
}

// markOpaque notes hashes that the engine holds and the index cannot. What they meant before is void.
func (x *Index) markOpaque(h *holder, tier kvcache.Tier, hashes []kvcache.EngineHash) {
	tab := &h.tiers[tier]
	for _, e := range hashes {
		if at := tab.get(e); at != nil {
			tab.drop(e)
			x.mu.Lock()
			x.release(h, tier, at)
			x.mu.Unlock()
		}
		h.opaque[e] |= 1 << tier
	}
}

func (h *holder) clearOpaque(tier kvcache.Tier, e kvcache.EngineHash) {
	if len(h.opaque) == 0 {
		return
	}
	if left := h.opaque[e] &^ (1 << tier); left != 0 {
		h.opaque[e] = left
	} else {
		delete(h.opaque, e)
	}
}
