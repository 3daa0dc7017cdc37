package runtrie

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"

	"github.com/routerd/routerd/kvcache"
)

const (
	minChildren = 64
	lowHalf     = 1<<32 - 1
	gone        = 1<<32 - 1 // a slot whose child went; no child has the id
)

// children finds the node behind a position and a hash: open addressing, with a tag of
// 32 bits and the child's id in one word. A slot's place is told by its tag alone, so
// that a larger table is filled without a look at the nodes. Readers see a table that
// is not changed but word by word; a new one takes its place when it is too full.
// Writers hold the trie's lock.
type children struct {
	table   atomic.Pointer[childTable]
	secret  [2]uint64
	used    int // slots that have a child
	spoiled int // slots whose child went
}

type childTable struct {
	slots []atomic.Uint64
	shift uint8 // what is left of a tag is its place
}

func newChildTable(size int) *childTable {
	return &childTable{make([]atomic.Uint64, size), uint8(33 - bits.Len(uint(size)))}
}

func newChildren() *children {
	c := &children{secret: [2]uint64{rand.Uint64(), rand.Uint64()}} // users choose the hashes
	c.table.Store(newChildTable(minChildren))
	return c
}

func (c *children) tag(parent, attach uint32, first kvcache.BlockHash) uint32 {
	hi, lo := bits.Mul64(uint64(first)^c.secret[0], (uint64(parent)<<8|uint64(attach))^c.secret[1])
	return uint32((hi ^ lo) >> 32)
}

// child returns the node that begins with a hash behind the first offset blocks of a
// node, or 0.
func (t *Trie) child(n *node, id, offset uint32, first kvcache.BlockHash) uint32 {
	if n.children() == 0 {
		return 0
	}
	if offset == Run && uint64(n.tag.Load()) == uint64(first)&lowHalf {
		if kid := n.next.Load(); kid != 0 && t.is(kid, id, offset, first) {
			return kid
		}
	}
	tag := t.children.tag(id, offset, first)
	table := t.children.table.Load()
	mask := uint32(len(table.slots) - 1)
	for i := tag >> table.shift; ; i++ {
		slot := table.slots[i&mask].Load()
		if slot == 0 {
			return 0
		}
		kid := uint32(slot)
		if slot>>32 == uint64(tag) && kid != gone && t.is(kid, id, offset, first) {
			return kid
		}
	}
}

// is tells whether a node is the child that is looked for.
func (t *Trie) is(kid, parent, attach uint32, first kvcache.BlockHash) bool {
	n := t.nodes.at(kid)
	if n.parent != parent || uint32(n.attach) != attach {
		return false
	}
	area, length := unpackRun(n.run.Load())
	return length > 0 && t.areas.words(area)[0] == first
}

// adopt makes a node that has its run visible as a child.
func (t *Trie) adopt(kid uint32, first kvcache.BlockHash) {
	c, n := t.children, t.nodes.at(kid)
	if (c.used+c.spoiled+1)*3 > len(c.table.Load().slots)*2 {
		c.rebuild()
	}
	c.table.Load().put(uint64(c.tag(n.parent, uint32(n.attach), first))<<32 | uint64(kid))
	c.used++
	up := t.nodes.at(n.parent)
	up.kids.Add(1)
	up.top = max(up.top, n.attach)
	if n.attach == Run && up.next.Load() == 0 {
		up.next.Store(kid)
		up.tag.Store(uint32(first))
	}
}

func (t *childTable) put(slot uint64) {
	mask := uint32(len(t.slots) - 1)
	for i := uint32(slot>>32) >> t.shift; ; i++ {
		if t.slots[i&mask].Load() == 0 {
			t.slots[i&mask].Store(slot)
			return
		}
	}
}

// Touch reads what Drop looks at first of some nodes, which are there, so that it is at hand: the misses overlap.
func (t *Trie) Touch(ids []uint32) (sum uint64) {
	c, table := t.children, t.children.table.Load()
	for _, id := range ids {
		n := t.nodes.at(id)
		sum += n.run.Load() + uint64(n.parent)
	}
	for _, id := range ids {
		sum += uint64(t.words(t.nodes.at(id).run.Load())[0])
	}
	for _, id := range ids {
		n := t.nodes.at(id)
		i := c.tag(n.parent, uint32(n.attach), t.words(n.run.Load())[0]) >> table.shift
		sum += table.slots[i&uint32(len(table.slots)-1)].Load()
	}
	return sum
}

// disown takes a child out of its parent's children.
func (t *Trie) disown(kid uint32) {
	c, n := t.children, t.nodes.at(kid)
	first := t.words(n.run.Load())[0]
	table := c.table.Load()
	mask := uint32(len(table.slots) - 1)
	for i := c.tag(n.parent, uint32(n.attach), first) >> table.shift; ; i++ {
		if table.slots[i&mask].Load()&lowHalf == uint64(kid) {
			table.slots[i&mask].Store(gone)
			break
		}
	}
	c.used--
	c.spoiled++
	up := t.nodes.at(n.parent)
	if up.kids.Add(^uint32(0))&^crowded == 0 {
		up.top = 0
	}
	if up.next.Load() == kid {
		up.next.Store(0)
	}
	if size := len(table.slots); size > minChildren && c.used*8 < size {
		c.rebuild()
	}
}

// rebuild makes a table that is at most half full, without the slots whose children
// went.
func (c *children) rebuild() {
	size := minChildren
	for (c.used+1)*2 > size {
		size *= 2
	}
	now := newChildTable(size)
	was := c.table.Load().slots
	for i := range was {
		if slot := was[i].Load(); slot != 0 && slot != gone {
			now.put(slot)
		}
	}
	c.spoiled = 0
	c.table.Store(now)
}
