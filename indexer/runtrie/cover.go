package runtrie

import (
	"math/bits"
	"sync/atomic"
)

// fewExceptions may always stand in a crowd's list.
const fewExceptions = 8

// crowd is the cover of a node that more than a few hold. The set has those who lead by
// the most frequent number of blocks; the list has the others.
type crowd struct {
	lead  uint32 // of those in the set
	set   []atomic.Uint64
	list  []atomic.Uint32 // packed as a node's own; those from count on mean nothing
	count atomic.Uint32

	holders int // of all kinds; writers alone look at it
	most    int // exceptions above which the set is made anew
}

func packCover(slot, lead uint32) uint32 { return (slot+1)<<8 | lead }

func unpackCover(w uint32) (slot, lead uint32) { return w>>8 - 1, w & 0xff }

func (c *crowd) has(slot uint32) bool {
	return int(slot>>6) < len(c.set) && c.set[slot>>6].Load()>>(slot&63)&1 != 0
}

func (c *crowd) flip(slot uint32) { c.set[slot>>6].Store(c.set[slot>>6].Load() ^ 1<<(slot&63)) }

// exception is the place of a slot in the list, or -1.
func (c *crowd) exception(slot uint32) int {
	for i := range c.list[:c.count.Load()] {
		if c.list[i].Load()>>8 == slot+1 {
			return i
		}
	}
	return -1
}

// leadOf is how many leading blocks of the node a slot has.
func (t *Trie) leadOf(n *node, id, slot uint32) uint32 {
	if !n.inCrowd() {
		for i := range n.cover {
			if w := n.cover[i].Load(); w>>8 == slot+1 {
				return w & 0xff
			}
		}
		return 0
	}
	c := t.nodes.crowd(id).Load()
	if c == nil {
		return 0 // a reader came between two changes, and looks again
	}
	if c.has(slot) {
		return c.lead
	}
	if i := c.exception(slot); i >= 0 {
		return c.list[i].Load() & 0xff
	}
	return 0
}

// setLead changes how many leading blocks of the node a slot has.
func (t *Trie) setLead(n *node, id, slot, from, to uint32) {
	if from == to {
		return
	}
	if n.inCrowd() {
		t.setCrowd(n, id, slot, from, to)
		return
	}
	free := -1
	for i := range n.cover {
		switch w := n.cover[i].Load(); {
		case w>>8 == slot+1:
			if to == 0 {
				n.cover[i].Store(0)
			} else {
				n.cover[i].Store(packCover(slot, to))
			}
			return
		case w == 0:
			free = i
		}
	}
	if free >= 0 {
		n.cover[free].Store(packCover(slot, to))
		return
	}
	t.gather(n, id, slot, to)
}

// gather makes a crowd of a node's own cover and one more.
func (t *Trie) gather(n *node, id, slot, lead uint32) {
	all := make([]uint32, 0, inline+1)
	for i := range n.cover {
		all = append(all, n.cover[i].Load())
	}
	c := newCrowd(append(all, packCover(slot, lead)), len(t.slots.all))
	t.crowds += c.bytes()
	n.version.Add(1)
	t.nodes.crowd(id).Store(c)
	n.kids.Or(crowded)
	for i := range n.cover {
		n.cover[i].Store(0)
	}
	n.version.Add(1)
}

// newCrowd makes a crowd of covers; slots are how many there are.
func newCrowd(all []uint32, slots int) *crowd {
	var often [256]int
	lead := uint32(0)
	for _, w := range all {
		if often[w&0xff]++; often[w&0xff] > often[lead] {
			lead = w & 0xff
		}
	}
	exceptions := len(all) - often[lead]
	c := &crowd{
		lead: lead, set: make([]atomic.Uint64, (slots+63)/64), list: make([]atomic.Uint32, exceptions+exceptions/2+2),
		holders: len(all), most: max(fewExceptions, 2*exceptions),
	}
	n := uint32(0)
	for _, w := range all {
		if slot, l := unpackCover(w); l == lead {
			c.flip(slot)
		} else {
			c.list[n].Store(w)
			n++
		}
	}
	c.count.Store(n)
	return c
}

// all are the covers of a crowd.
func (c *crowd) all() []uint32 {
	all := make([]uint32, 0, c.holders)
	for i := range c.set {
		for set := c.set[i].Load(); set != 0; set &= set - 1 {
			all = append(all, packCover(uint32(64*i+bits.TrailingZeros64(set)), c.lead))
		}
	}
	for i := range c.list[:c.count.Load()] {
		all = append(all, c.list[i].Load())
	}
	return all
}

// setCrowd is setLead for a crowd.
func (t *Trie) setCrowd(n *node, id, slot, from, to uint32) {
	c := t.nodes.crowd(id).Load()
	switch {
	case from == 0:
		c.holders++
	case to == 0:
		c.holders--
	}
	if c.holders <= inline/2 {
		t.disperse(n, id, c, slot, to)
		return
	}
	if c.change(n, slot, from, to) {
		return
	}
	all := c.all()
	if from == 0 {
		all = append(all, packCover(slot, to))
	}
	for i, w := range all {
		if w>>8 == slot+1 {
			all[i] = packCover(slot, to)
		}
	}
	now := newCrowd(all, len(t.slots.all))
	t.crowds += now.bytes() - c.bytes()
	n.version.Add(1)
	t.nodes.crowd(id).Store(now)
	n.version.Add(1)
}

// change changes one slot's lead in place, and tells false where the crowd has to be
// made anew for it.
func (c *crowd) change(n *node, slot, from, to uint32) bool {
	if to == c.lead && int(slot>>6) >= len(c.set) {
		return false
	}
	listed := from != 0 && from != c.lead
	at, count := -1, c.count.Load()
	if listed {
		at = c.exception(slot)
	}
	switch {
	case listed && to != 0 && to != c.lead: // one word
		c.list[at].Store(packCover(slot, to))
	case !listed && to != 0 && to != c.lead: // onto the list
		if int(count) == min(c.most, len(c.list)) {
			return false
		}
		n.version.Add(1)
		c.list[count].Store(packCover(slot, to))
		c.count.Store(count + 1)
		if from == c.lead {
			c.flip(slot)
		}
		n.version.Add(1)
	case listed: // off the list
		n.version.Add(1)
		c.list[at].Store(c.list[count-1].Load())
		c.count.Store(count - 1)
		if to == c.lead {
			c.flip(slot)
		}
		n.version.Add(1)
	default: // into the set or out of it
		c.flip(slot)
	}
	return true
}

// disperse gives a node its own cover back.
func (t *Trie) disperse(n *node, id uint32, c *crowd, slot, lead uint32) {
	t.crowds -= c.bytes()
	i, all := 0, c.all()
	n.version.Add(1)
	for _, w := range all {
		if w>>8 == slot+1 {
			continue
		}
		n.cover[i].Store(w)
		i++
	}
	if lead != 0 {
		n.cover[i].Store(packCover(slot, lead))
	}
	n.kids.And(^uint32(crowded))
	t.nodes.crowd(id).Store(nil)
	n.version.Add(1)
}
