package runtrie

const (
	coldStep  = 1024 // nodes that a step looks at
	ageShift  = 3    // of the ticks of a bucket
	ages      = 256  // buckets
	blockCost = 15   // bytes that a holder has about for a block that it holds
)

// Tick has the clock go on by which nodes tell how long they were not used. Without it all are equally old.
func (t *Trie) Tick() { t.clock.Add(1) }

// Use notes that a node is used.
func (t *Trie) Use(id uint32) { t.useAll(id, t.clock.Load()) }

// use notes what the clock shows. Readers do so too, so that a node's line is written once a tick.
func (n *node) use(now uint32) {
	if n.age.Load() != now {
		n.age.Store(now)
	}
}

// useAll notes that a node is used and those above it, which are never older.
func (t *Trie) useAll(id, now uint32) {
	for id != 0 {
		n := t.nodes.at(id)
		if n.age.Load() == now {
			return
		}
		n.age.Store(now)
		id = n.parent
	}
}

// Cold finds the nodes that were not used for longest and that have no children but such ones, so that whoever loses
// them has a prefix left. It looks at some nodes a step: first at how old all are, then, from where the last search
// ended, for those that are old enough. The trie's lock is held in each of its methods but Has and Everything.
type Cold struct {
	trie *Trie
	want int64  // bytes
	now  uint32 // of the clock when it began

	weight [ages]int64 // of the nodes by age
	cuts   []int       // the least ages of the passes to come; the first one is of this pass
	next   uint32      // node
	left   uint32      // nodes of this pass

	marks []uint64               // by node
	below Sparse[uint32, uint32] // by node, how many of its children are marked
	found int64                  // bytes
}

// Cold begins a search for nodes that have, with what their holders know of them, so many bytes, at least 1.
func (t *Trie) Cold(want int64) *Cold {
	c := &Cold{trie: t, want: max(1, want), now: t.clock.Load(), next: 1, left: t.nodes.fresh, marks: make([]uint64, t.nodes.fresh/64+1)}
	t.Tick() // what is used from now on is told from what was
	return c
}

// Bytes is the memory of the search.
func (c *Cold) Bytes() int64 { return sliceBytes(c.marks) + c.below.Bytes() }

// Step looks at some more nodes and reports whether there is more to do.
func (c *Cold) Step() (more bool) {
	fresh := c.trie.nodes.fresh
	for range min(coldStep, c.left) {
		if c.next++; c.next >= fresh {
			c.next = 1
		}
		c.left--
		switch n := c.trie.nodes.at(c.next); {
		case n.idle():
		case c.cuts == nil:
			c.weight[max(0, c.age(n))] += weigh(n)
		default:
			c.mark(c.next)
		}
		if c.found >= c.want {
			c.left, c.cuts = 0, c.cuts[:1] // that is enough
			break
		}
	}
	return c.left > 0 || c.pass()
}

// pass begins the next pass: over those that are certainly among the oldest, over those of which as many are still
// wanted, over all.
func (c *Cold) pass() bool {
	switch {
	case c.cuts == nil:
		cut, sum := ages-1, c.weight[ages-1]
		for ; cut > 0 && sum < c.want; sum += c.weight[cut] {
			cut--
		}
		c.cuts, c.next = []int{cut + 1, cut, 0}, c.trie.hand
	case len(c.cuts) == 1:
		c.trie.hand = c.next
		return false
	default:
		c.cuts = c.cuts[1:]
	}
	c.left = c.trie.nodes.fresh
	return true
}

// mark takes a node if it is old enough and its children are all taken, then those above it.
func (c *Cold) mark(id uint32) {
	for id != 0 && !c.Has(id) && c.Still(id) {
		n := c.trie.nodes.at(id)
		if c.below.Get(id) < n.children() {
			return
		}
		c.below.Delete(id)
		if at := int(id / 64); at >= len(c.marks) {
			c.marks = append(c.marks, make([]uint64, at+1-len(c.marks))...)
		}
		c.marks[id/64] |= 1 << (id % 64)
		c.found += weigh(n)
		if id = n.parent; id != 0 {
			c.below.Put(id, c.below.Get(id)+1)
		}
	}
}

// Has tells whether a node was taken.
func (c *Cold) Has(id uint32) bool {
	return int(id/64) < len(c.marks) && c.marks[id/64]>>(id%64)&1 != 0
}

// Still tells whether a node is as old as those that are taken.
func (c *Cold) Still(id uint32) bool { return c.age(c.trie.nodes.at(id)) >= c.cuts[0] }

// Everything tells whether there was too little that is old.
func (c *Cold) Everything() bool { return c.found < c.want }

// age is how long a node was not used, in buckets; -1 when it was since the search began.
func (c *Cold) age(n *node) int {
	ticks := int32(c.now - n.age.Load())
	return min(int(ticks>>ageShift), ages-1)
}

// weigh is about how many bytes a node has, with what its holders know of it.
func weigh(n *node) int64 {
	const header = nodePageBytes/nodePage + 2*8 // and its slot among the children
	return header + 8<<n.class + blockCost*int64(n.held)
}
