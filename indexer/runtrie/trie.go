package runtrie

import (
	"errors"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/routerd/routerd/kvcache"
)

// ErrFull is a trie that has as many nodes or hashes as its numbers can name.
var ErrFull = errors.New("the trie is full")

// MaxSlots is how many holders there can be.
const MaxSlots = 1<<24 - 1

// Trie says who holds which prefix. Find may be called at any time, all else between
// Lock and Unlock.
type Trie struct {
	sync.Mutex // of writers

	areas    *areas
	nodes    *nodes
	children *children
	epochs   epochs

	slots slots
	salts *salts

	clock atomic.Uint32 // goes on with Tick
	hand  uint32        // where the next search for cold nodes begins

	moved uint32 // nodes below it were looked at by Compact; 0 while it has nothing to do

	holes, crowds int64 // bytes of all holders' holes, of all crowds
}

// slots are the numbers of holders.
type slots struct {
	free []uint32
	all  []*Holder // by slot; nil where nobody has it
}

// New returns an empty trie of at most so many nodes, 2 to MaxNodes.
func New(nodes uint32) *Trie {
	return &Trie{areas: newAreas(), nodes: newNodes(nodes), children: newChildren(), salts: newSalts()}
}

// Holder is somebody who holds blocks. It is for writers.
type Holder struct {
	slot  uint32
	holes Sparse[uint32, Mask] // by node, where the positions are no prefix
}

// Slot is the holder's number, by which a Query asks for it.
func (h *Holder) Slot() uint32 { return h.slot }

// Join returns a new holder that holds nothing, and ErrFull where there are MaxSlots.
func (t *Trie) Join() (*Holder, error) {
	s := &t.slots
	if n := len(s.free); n > 0 {
		h := &Holder{slot: s.free[n-1]}
		s.free, s.all[h.slot] = s.free[:n-1], h
		return h, nil
	}
	if len(s.all) == MaxSlots {
		return nil, ErrFull
	}
	h := &Holder{slot: uint32(len(s.all))}
	s.all = append(s.all, h)
	return h, nil
}

// Leave ends a holder that holds nothing.
func (t *Trie) Leave(h *Holder) {
	t.slots.all[h.slot] = nil
	t.retire(retired{what: slotGone, n: h.slot})
}

// Holed are the nodes of which the holder's positions are no prefix, in no order. They must not change meanwhile.
func (h *Holder) Holed() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for id := range h.holes.All() {
			if !yield(id) {
				return
			}
		}
	}
}

// Holes is how many nodes those are.
func (h *Holder) Holes() int { return h.holes.Len() }

// positions are those of a node that a holder has, of which lead are its first ones.
func (t *Trie) positions(n *node, id uint32, h *Holder) (m Mask, lead uint32) {
	lead = t.leadOf(n, id, h.slot)
	if n.holed > 0 {
		if m := h.holes.Get(id); m != (Mask{}) {
			return m, lead
		}
	}
	return first(lead), lead
}

// Positions are those of a node that a holder has.
func (t *Trie) Positions(id uint32, h *Holder) Mask {
	m, _ := t.positions(t.nodes.at(id), id, h)
	return m
}

// Hold gives positions of a node to a holder, and returns which it had.
func (t *Trie) Hold(id uint32, h *Holder, m Mask) (had Mask) {
	n := t.nodes.at(id)
	had, lead := t.positions(n, id, h)
	t.change(n, id, h, had, lead, had.or(m))
	return had
}

// HoldStretch is Hold of the positions of a stretch.
func (t *Trie) HoldStretch(s Stretch, h *Holder) (had Mask) {
	n := t.nodes.at(s.Node)
	if n.holed == 0 && !n.inCrowd() {
		for i := range n.cover {
			w := n.cover[i].Load()
			if w>>8 != h.slot+1 {
				continue
			}
			lead := w & 0xff
			if s.From > lead {
				break
			}
			if s.To > lead { // it has more of the run's beginning, which is the most frequent of all changes
				n.held += s.To - lead
				n.cover[i].Store(packCover(h.slot, s.To))
			}
			return first(lead)
		}
	}
	return t.Hold(s.Node, h, Positions(s.From, s.To))
}

// Drop takes positions of a node from a holder. Nodes that nobody needs any more go.
func (t *Trie) Drop(id uint32, h *Holder, m Mask) {
	n := t.nodes.at(id)
	had, lead := t.positions(n, id, h)
	now := had.Minus(m)
	t.change(n, id, h, had, lead, now)
	switch half := uint32(1) << n.class / 2; {
	case n.idle():
		t.prune(id)
	case n.holed == 0 && now.lead() <= half && (lead > half || now != had && had != first(lead)):
		t.trim(n, id)
	}
}

// change makes a holder have other positions of a node.
func (t *Trie) change(n *node, id uint32, h *Holder, had Mask, lead uint32, now Mask) {
	if now == had {
		return
	}
	to := now.lead()
	n.held += now.count() - had.count() // wraps around
	if was, is := had != first(lead), now != first(to); was || is {
		t.pierce(n, id, h, was, is, now)
	}
	t.setLead(n, id, h.slot, lead, to)
}

// pierce notes whether a holder had holes in a node, and has them now.
func (t *Trie) pierce(n *node, id uint32, h *Holder, was, is bool, now Mask) {
	t.holes -= h.holes.Bytes()
	if is {
		h.holes.Put(id, now)
	}
	switch {
	case is && !was:
		n.holed++
	case was && !is:
		n.holed--
		h.holes.Delete(id)
	}
	t.holes += h.holes.Bytes()
}

// trim makes a run shorter whose tail nobody needs, if it then fits half the area.
func (t *Trie) trim(n *node, id uint32) {
	top := max(uint32(n.top), t.longest(n, id))
	area, length := unpackRun(n.run.Load())
	if top == 0 || top >= length || top > 1<<n.class/2 {
		return
	}
	class := classOf(top)
	to, ok := t.areas.alloc(class)
	if !ok {
		return
	}
	copy(t.areas.words(to)[:top], t.areas.words(area)[:top])
	n.version.Add(1) // the tail may soon be another
	n.run.Store(packRun(to, top))
	n.version.Add(1)
	n.class = class
	t.retire(retired{what: areaGone, n: area})
}

// longest is the most leading blocks that a holder of a node has.
func (t *Trie) longest(n *node, id uint32) (most uint32) {
	if !n.inCrowd() {
		for i := range n.cover {
			most = max(most, n.cover[i].Load()&0xff)
		}
		return most
	}
	c := t.nodes.crowd(id).Load()
	if c.holders > int(c.count.Load()) {
		most = c.lead
	}
	for i := range c.list[:c.count.Load()] {
		most = max(most, c.list[i].Load()&0xff)
	}
	return most
}

// prune takes out a node that nobody needs, and those above it that were there for it.
func (t *Trie) prune(id uint32) {
	for id != 0 {
		n := t.nodes.at(id)
		if !n.idle() {
			if n.holed == 0 {
				t.trim(n, id)
			}
			return
		}
		t.disown(id)
		area, _ := unpackRun(n.run.Load())
		t.salts.drop(n.salt)
		t.retire(retired{what: areaGone, n: area})
		t.retire(retired{what: nodeGone, n: id})
		id = n.parent
	}
}

// Nodes is how many nodes there are, those that wait to be used again included.
func (t *Trie) Nodes() int { return t.nodes.used() }

// Salted tells whether any chain has a salt. It may be called at any time; who holds a
// block of such a chain is told so.
func (t *Trie) Salted() bool { return t.salts.inUse.Load() > 0 }

// Salt is what the cache salt of a node's chain adds to the seed of its hashes.
func (t *Trie) Salt(id uint32) uint64 { return t.salts.of(t.nodes.at(id).salt) }

// Above returns the node that a node is attached to, and behind how many of its blocks; the root
// is node 0.
func (t *Trie) Above(id uint32) (parent, attach uint32) {
	n := t.nodes.at(id)
	return n.parent, uint32(n.attach)
}

// Blocks are the hashes of a node's run.
func (t *Trie) Blocks(id uint32) []kvcache.BlockHash { return t.words(t.nodes.at(id).run.Load()) }

// Stretch is positions of a node, from one up to, and without, another.
type Stretch struct {
	Node     uint32
	From, To uint32
}

// Grow makes the path of blocks behind another block, or from the root on behind 0, as
// far as it is not there, and appends it to path. The caller must have somebody hold
// all of it before it lets go of the lock. salt counts where a chain begins. The error
// is ErrFull; then nothing is left of what was made.
func (t *Trie) Grow(path []Stretch, behind Ref, salt uint64, blocks []kvcache.BlockHash) ([]Stretch, error) {
	id, offset := behind.Node()
	if behind != 0 {
		offset++
	}
	now := t.clock.Load()
	t.useAll(id, now)
	for len(blocks) > 0 {
		n := t.nodes.at(id)
		n.use(now)
		run := t.words(n.run.Load())
		from := offset
		if int(from) < len(run) {
			offset += uint32(match(run[from:], blocks))
			blocks = blocks[offset-from:]
		}
		kid := uint32(0)
		if len(blocks) > 0 {
			kid = t.child(n, id, offset, blocks[0])
		}
		if len(blocks) > 0 && kid == 0 && id != 0 && int(offset) == len(run) && offset < Run {
			k := min(uint32(len(blocks)), Run-offset)
			if !t.extend(n, offset, blocks[:k]) {
				return path, t.giveUp(id)
			}
			offset += k
			blocks = blocks[k:]
			if len(blocks) > 0 {
				kid = t.child(n, id, offset, blocks[0])
			}
		}
		if offset > from {
			path = append(path, Stretch{id, from, offset})
		}
		if len(blocks) == 0 {
			break
		}
		if kid == 0 {
			k := min(uint32(len(blocks)), Run)
			var ok bool
			if kid, ok = t.branch(n, id, offset, salt, blocks[:k]); !ok {
				return path, t.giveUp(id)
			}
			path = append(path, Stretch{kid, 0, k})
			blocks = blocks[k:]
			id, offset = kid, k
			continue
		}
		id, offset = kid, 0
	}
	return path, nil
}

// giveUp takes back what a path made that could not be finished behind a node.
func (t *Trie) giveUp(id uint32) error {
	if id != 0 && t.nodes.at(id).idle() {
		t.prune(id)
	}
	return ErrFull
}

// extend appends to a run that ends at length.
func (t *Trie) extend(n *node, length uint32, blocks []kvcache.BlockHash) bool {
	area, _ := unpackRun(n.run.Load())
	now := length + uint32(len(blocks))
	if now <= 1<<n.class {
		copy(t.areas.words(area)[length:], blocks)
		n.run.Store(packRun(area, now))
		return true
	}
	class := classOf(now)
	to, ok := t.areas.alloc(class)
	if !ok {
		return false
	}
	words := t.areas.words(to)
	copy(words, t.areas.words(area)[:length])
	copy(words[length:], blocks)
	n.run.Store(packRun(to, now))
	n.class = class
	t.retire(retired{what: areaGone, n: area})
	return true
}

// branch makes a child.
func (t *Trie) branch(up *node, parent, attach uint32, salt uint64, blocks []kvcache.BlockHash) (uint32, bool) {
	id, ok := t.nodes.alloc()
	if !ok {
		return 0, false
	}
	class := classOf(uint32(len(blocks)))
	area, ok := t.areas.alloc(class)
	if !ok {
		t.nodes.release(id)
		return 0, false
	}
	copy(t.areas.words(area), blocks)
	n := t.nodes.at(id)
	n.parent, n.attach, n.top, n.class = parent, uint8(attach), 0, class
	if parent == 0 {
		n.salt = t.salts.take(salt)
	} else {
		n.salt = t.salts.again(up.salt)
	}
	n.age.Store(t.clock.Load())
	n.run.Store(packRun(area, uint32(len(blocks))))
	t.adopt(id, blocks[0])
	return id, true
}

// match is how many leading hashes two lists share.
func match(a, b []kvcache.BlockHash) int {
	n := min(len(a), len(b))
	i := 0
	for i+32 <= n && *(*[32]kvcache.BlockHash)(a[i:]) == *(*[32]kvcache.BlockHash)(b[i:]) {
		i += 32
	}
	for i+8 <= n && *(*[8]kvcache.BlockHash)(a[i:]) == *(*[8]kvcache.BlockHash)(b[i:]) {
		i += 8
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
