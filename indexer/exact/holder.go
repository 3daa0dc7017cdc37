package exact

import (
	"sync"

	"github.com/routerd/routerd/kvcache"
)

// maxGroups bounds how many cache groups of a worker are remembered as not being the main one.
const maxGroups = 1024

// table maps the engine hashes of one worker on one tier to nodes.
type table struct {
	numbers map[uint64]*node
	texts   map[string]*node
	extra   map[*node]int // how many hashes beyond the first map to a node
}

func (t *table) get(e kvcache.EngineHash) *node {
	if n, ok := e.Number(); ok {
		return t.numbers[n]
	}
	return t.texts[e.Bytes()]
}

func (t *table) put(e kvcache.EngineHash, at *node) {
	if n, ok := e.Number(); ok {
		if t.numbers == nil {
			t.numbers = map[uint64]*node{}
		}
		t.numbers[n] = at
		return
	}
	if t.texts == nil {
		t.texts = map[string]*node{}
	}
	t.texts[e.Bytes()] = at
}

func (t *table) drop(e kvcache.EngineHash) {
	if n, ok := e.Number(); ok {
		delete(t.numbers, n)
		return
	}
	delete(t.texts, e.Bytes())
}

func (t *table) size() int { return len(t.numbers) + len(t.texts) }

func (t *table) each(f func(kvcache.EngineHash, *node)) {
	for n, at := range t.numbers {
		f(kvcache.NumberHash(n), at)
	}
	for s, at := range t.texts {
		if e, ok := kvcache.BytesHash([]byte(s)); ok {
			f(e, at)
		}
	}
}

// holder is what the index knows of one worker and rank.
type holder struct {
	slot int

	mu    sync.Mutex // guards all below
	gone  bool       // removed from the index; look the worker up again
	tiers [kvcache.Tiers]table
	// opaque has the hashes that the engine stored and that cannot be indexed, with a bit for each tier.
	opaque map[kvcache.EngineHash]uint8
	full   bool // a block of the right size was stored

	mainKnown bool
	main      int32
	others    map[int32]struct{}

	// scratch of one store
	hashes []kvcache.BlockHash
	olds   []*node
	nodes  []*node
	seen   map[kvcache.EngineHash]struct{}
}

func newHolder(slot int) *holder {
	return &holder{
		slot:   slot,
		opaque: map[kvcache.EngineHash]uint8{},
		others: map[int32]struct{}{},
		seen:   map[kvcache.EngineHash]struct{}{},
	}
}

// forget empties the tables after the trie was told.
func (h *holder) forget() {
	h.tiers = [kvcache.Tiers]table{}
	clear(h.opaque)
	clear(h.others)
	h.full, h.mainKnown, h.main = false, false, 0
}

// find looks a hash up in its own tier, then in all tiers from the fastest on.
func (h *holder) find(own kvcache.Tier, e kvcache.EngineHash) *node {
	if at := h.tiers[own].get(e); at != nil {
		return at
	}
	for t := range h.tiers {
		if at := h.tiers[t].get(e); at != nil {
			return at
		}
	}
	return nil
}

// admit decides whether a store's cache group is the one that counts, and learns from it.
func (h *holder) admit(ev *kvcache.Event) (kvcache.DropReason, bool) {
	_, other := h.others[ev.Group]
	switch ev.Attention {
	case kvcache.AttentionWindowed:
		h.learn(ev.Group)
		return kvcache.DropOtherGroup, false
	case kvcache.AttentionUnknown:
		h.learn(ev.Group)
		return kvcache.DropUnknownAttention, false
	case kvcache.AttentionPrefix:
		if !h.mainKnown && !other {
			h.mainKnown, h.main = true, ev.Group
		}
		if ev.Group != h.main || !h.mainKnown {
			h.learn(ev.Group)
			return kvcache.DropOtherGroup, false
		}
		return 0, true
	}
	if !h.mainKnown && ev.Group == 0 && !other {
		h.mainKnown, h.main = true, 0
	}
	return h.admitRemoval(ev)
}

// admitRemoval decides whether a group is the main one, without learning.
func (h *holder) admitRemoval(ev *kvcache.Event) (kvcache.DropReason, bool) {
	if _, other := h.others[ev.Group]; other {
		return kvcache.DropOtherGroup, false
	}
	if h.mainKnown && ev.Group == h.main || !h.mainKnown && ev.Group == 0 {
		return 0, true
	}
	return kvcache.DropUnknownGroup, false
}

func (h *holder) learn(group int32) {
	if (!h.mainKnown || group != h.main) && len(h.others) < maxGroups {
		h.others[group] = struct{}{}
	}
}

// repeats tells whether a list names a hash twice.
func (h *holder) repeats(list []kvcache.EngineHash) bool {
	if len(list) <= 16 {
		for i, e := range list {
			for _, f := range list[:i] {
				if e == f {
					return true
				}
			}
		}
		return false
	}
	clear(h.seen)
	for _, e := range list {
		h.seen[e] = struct{}{}
	}
	return len(h.seen) < len(list)
}
