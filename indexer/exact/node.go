package exact

import (
	"github.com/routerd/routerd/kvcache"
)

// node is one block behind one prefix.
type node struct {
	parent *node
	local  kvcache.BlockHash
	salt   uint64 // what the chain's cache salt adds to the seed
	held   int    // bits set in device and lower

	only   *node // the child, when there is one
	kids   map[kvcache.BlockHash]*node
	device cover
	lower  *[kvcache.Tiers - 1]cover
}

// cover is a set of worker slots.
type cover struct {
	first uint64
	rest  []uint64
}

func (c *cover) word(i int) uint64 {
	switch {
	case i == 0:
		return c.first
	case i <= len(c.rest):
		return c.rest[i-1]
	}
	return 0
}

func (c *cover) has(slot int) bool { return c.word(slot>>6)&(1<<(slot&63)) != 0 }

func (c *cover) flip(slot int) {
	if slot < 64 {
		c.first ^= 1 << slot
		return
	}
	i := slot>>6 - 1
	for len(c.rest) <= i {
		c.rest = append(c.rest, 0)
	}
	c.rest[i] ^= 1 << (slot & 63)
}

// child returns the child for a local hash, or nil.
func (n *node) child(local kvcache.BlockHash) *node {
	if n.kids != nil {
		return n.kids[local]
	}
	if n.only != nil && n.only.local == local {
		return n.only
	}
	return nil
}

// grow returns the child for a local hash and makes it when there is none.
func (n *node) grow(local kvcache.BlockHash, salt uint64) *node {
	if kid := n.child(local); kid != nil {
		return kid
	}
	kid := &node{parent: n, local: local, salt: salt}
	switch {
	case n.kids != nil:
		n.kids[local] = kid
	case n.only == nil:
		n.only = kid
	default:
		n.kids = map[kvcache.BlockHash]*node{n.only.local: n.only, local: kid}
		n.only = nil
	}
	return kid
}

func (n *node) dropChild(kid *node) {
	if n.kids == nil {
		n.only = nil
		return
	}
	delete(n.kids, kid.local)
	if len(n.kids) == 1 {
		for _, last := range n.kids {
			n.only = last
		}
		n.kids = nil
	}
}

func (n *node) leaf() bool { return n.only == nil && len(n.kids) == 0 }

func (n *node) cover(t kvcache.Tier) *cover {
	if t == kvcache.Device {
		return &n.device
	}
	if n.lower == nil {
		n.lower = new([kvcache.Tiers - 1]cover)
	}
	return &n.lower[t-1]
}

// upTo returns word i of the set of workers that hold the node on tier t or a faster one.
func (n *node) upTo(t kvcache.Tier, i int) uint64 {
	w := n.device.word(i)
	if n.lower != nil {
		for l := range n.lower[:t] {
			w |= n.lower[l].word(i)
		}
	}
	return w
}

// replace makes one engine hash of h mean at instead of old, which may be nil. The new node is taken before the old
// one is let go, so that nothing on the way to it can vanish. Index.mu is held.
func (x *Index) replace(h *holder, t kvcache.Tier, old, at *node) {
	if old == at {
		return
	}
	if c := at.cover(t); c.has(h.slot) {
		if h.tiers[t].extra == nil {
			h.tiers[t].extra = map[*node]int{}
		}
		h.tiers[t].extra[at]++
	} else {
		c.flip(h.slot)
		at.held++
		x.held[t]++
	}
	if old != nil {
		x.release(h, t, old)
	}
}

// release takes one engine hash of h from a node, and the node from the trie when nothing needs it. Index.mu is held.
func (x *Index) release(h *holder, t kvcache.Tier, at *node) {
	if more := h.tiers[t].extra[at]; more > 1 {
		h.tiers[t].extra[at] = more - 1
		return
	} else if more == 1 {
		delete(h.tiers[t].extra, at)
		return
	}
	at.cover(t).flip(h.slot)
	at.held--
	x.held[t]--
	for at != x.root && at.held == 0 && at.leaf() {
		at.parent.dropChild(at)
		at = at.parent
	}
}
