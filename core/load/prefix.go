package load

import (
	"slices"
	"sort"

	"github.com/routerd/routerd/kvcache"
)

// node is a run of blocks in the tree of all prompts that are booked in the
// partition. A sequence hash stands for its whole prefix, so that two runs
// agree up to some point and nowhere after. A booking holds the nodes from the
// root down to its leaf; a node that nobody holds is cut off at once, so that
// there are at most two nodes a booking.
type node struct {
	parent   *node
	run      []kvcache.SequenceHash
	children map[kvcache.SequenceHash]*node
	holders  []holder // ranks that hold the run, in order of first holding
}

type holder struct {
	slot   Slot
	count  int32
	weight micro // of each block; whole where count is above 1
}

// Active adds to out[s], for each slot s, what the leading blocks that are held
// there count in its DecodeBlocks: their number, less what Decay took off. So
// much of a prompt's blocks adds nothing to the load of the rank. out must have
// Len elements, which the caller has set to 0.
func (t *Tracker) Active(blocks []kvcache.SequenceHash, out []float64) {
	at := &t.root
	for len(blocks) > 0 {
		child := at.children[blocks[0]]
		if child == nil {
			return
		}
		n := agree(child.run, blocks)
		for _, h := range child.holders {
			out[h.slot] += h.weight.times(int64(n)).blocks()
		}
		if n < len(child.run) {
			return
		}
		at, blocks = child, blocks[n:]
	}
}

// hold puts a prompt's blocks into the tree for a slot and returns the leaf; nil
// for a prompt without blocks.
func (t *Tracker) hold(s Slot, blocks []kvcache.SequenceHash) *node {
	at := &t.root
	for len(blocks) > 0 {
		child := at.children[blocks[0]]
		if child == nil {
			child = &node{parent: at, run: slices.Clone(blocks)}
			at.adopt(child)
		}
		n := agree(child.run, blocks)
		if n < len(child.run) {
			child = child.split(n)
		}
		t.slots[s].blocks += child.add(s)
		at, blocks = child, blocks[n:]
	}
	if at == &t.root {
		return nil
	}
	return at
}

// drop takes one hold of a slot off the leaf and all above it.
func (t *Tracker) drop(s Slot, leaf *node) {
	for n := leaf; n != nil && n != &t.root; {
		parent := n.parent
		t.slots[s].blocks -= n.remove(s)
		if len(n.holders) == 0 {
			delete(parent.children, n.run[0])
			n.parent = nil
		}
		n = parent
	}
}

// split cuts the first k blocks off into a new parent and returns it. The node
// itself keeps the rest, so that leaves that point to it stay right.
func (n *node) split(k int) *node {
	upper := &node{parent: n.parent, run: n.run[:k:k], holders: slices.Clone(n.holders)}
	n.parent.children[upper.run[0]] = upper
	n.run, n.parent = n.run[k:], upper
	upper.adopt(n)
	return upper
}

func (n *node) adopt(child *node) {
	if n.children == nil {
		n.children = map[kvcache.SequenceHash]*node{}
	}
	n.children[child.run[0]] = child
}

// holder is the entry of a slot that holds the node; nil for one that does not.
func (n *node) holder(s Slot) *holder {
	for i := range n.holders {
		if n.holders[i].slot == s {
			return &n.holders[i]
		}
	}
	return nil
}

// add counts one more hold of a slot; it returns what this adds to the slot's
// blocks. What is shared counts whole.
func (n *node) add(s Slot) micro {
	h := n.holder(s)
	if h == nil {
		n.holders = append(n.holders, holder{s, 1, whole})
		return whole.times(int64(len(n.run)))
	}
	more := whole - h.weight
	h.count, h.weight = h.count+1, whole
	return more.times(int64(len(n.run)))
}

// remove takes one hold away; it returns what this takes off the slot's blocks.
func (n *node) remove(s Slot) micro {
	for i := range n.holders {
		h := &n.holders[i]
		if h.slot != s {
			continue
		}
		if h.count--; h.count > 0 {
			return 0
		}
		less := h.weight.times(int64(len(n.run)))
		n.holders = slices.Delete(n.holders, i, i+1)
		return less
	}
	return 0
}

// agree is the number of leading blocks that two runs have in common.
func agree(a, b []kvcache.SequenceHash) int {
	n := min(len(a), len(b))
	if n == 0 || a[n-1] == b[n-1] {
		return n // the last hash stands for all before it
	}
	return sort.Search(n, func(i int) bool { return a[i] != b[i] })
}
