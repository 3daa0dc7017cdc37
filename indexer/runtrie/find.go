package runtrie

import (
	"math/bits"
	"math/rand/v2"
	"runtime"

	"github.com/routerd/routerd/kvcache"
)

// Query asks for some holders. It is the scratch of one reader at a time.
type Query struct {
	place  int // where it was pinned last
	asked  []uint64
	active []uint64 // those that hold all blocks so far
	next   []uint64
	length []uint32 // by slot

	foreseen uint32 // only so that what foresee reads is not left out
}

// NewQuery returns a query that asks for nobody.
func NewQuery() *Query { return &Query{place: rand.IntN(readers)} }

// Pin has what readers see stay until Unpin: a slot that is looked up between them is
// nobody else's meanwhile.
func (t *Trie) Pin(q *Query) { q.place = t.epochs.enter(q.place) }

// Unpin ends a Pin.
func (t *Trie) Unpin(q *Query) { t.epochs.leave(q.place) }

// Reset makes the query ask for nobody.
func (q *Query) Reset() { clear(q.asked) }

// Ask asks for a slot too.
func (q *Query) Ask(slot uint32) {
	for int(slot>>6) >= len(q.asked) {
		q.asked, q.active, q.next = append(q.asked, 0), append(q.active, 0), append(q.next, 0)
		q.length = append(q.length, make([]uint32, 64)...)
	}
	q.asked[slot>>6] |= 1 << (slot & 63)
}

// Length is how many leading blocks a slot that was asked for was found with.
func (q *Query) Length(slot uint32) uint32 { return q.length[slot] }

// Find finds how many leading blocks those have who are asked for. The query is pinned.
func (t *Trie) Find(q *Query, blocks []kvcache.BlockHash) {
	clear(q.length)
	if len(blocks) == 0 {
		return
	}
	left := 0
	for i, set := range q.asked {
		q.active[i] = set
		left += bits.OnesCount64(set)
	}
	base, now := 0, t.clock.Load()
	for id := t.child(t.nodes.at(0), 0, 0, blocks[0]); id != 0 && left > 0; {
		n := t.nodes.at(id)
		n.use(now)
		t.foresee(q, n)
		m := 0
		if left == 1 {
			m, left = t.passAlone(q, n, id, blocks[base:], uint32(base))
		} else {
			m, left = t.pass(q, n, id, blocks[base:], uint32(base))
		}
		base += m
		if left == 0 || base == len(blocks) {
			break
		}
		id = t.child(n, id, uint32(m), blocks[base])
	}
	if left > 0 {
		for i, set := range q.active {
			q.settle(i, set, uint32(base))
		}
	}
}

// foresee reads of the node that most likely comes behind n what is looked at first, so that the memory is there by then.
func (t *Trie) foresee(q *Query, n *node) {
	kid := n.next.Load()
	if kid == 0 {
		return
	}
	q.foreseen += uint32(t.nodes.at(kid).run.Load())
	if c := t.nodes.crowd(kid).Load(); c != nil {
		q.foreseen += c.lead
	}
}

// settle sets the length of the slots whose bits are set in word i.
func (q *Query) settle(i int, set uint64, length uint32) {
	for ; set != 0; set &= set - 1 {
		q.length[64*i+bits.TrailingZeros64(set)] = length
	}
}

// stable returns an even version of a node.
func (n *node) stable() uint32 {
	for {
		if v := n.version.Load(); v&1 == 0 {
			return v
		}
		runtime.Gosched()
	}
}

// pass goes through a node: it returns how many blocks match, and how many of the
// active hold them all; the length of the others is set.
func (t *Trie) pass(q *Query, n *node, id uint32, blocks []kvcache.BlockHash, base uint32) (m, left int) {
	for {
		v := n.stable()
		m = match(t.words(n.run.Load()), blocks)
		yield()
		if !n.inCrowd() {
			left = q.few(n, uint32(m), base)
		} else if c := t.nodes.crowd(id).Load(); c != nil {
			left = q.many(c, uint32(m), base)
		}
		if n.version.Load() == v {
			q.active, q.next = q.next, q.active
			return m, left
		}
	}
}

// few is pass for a node's own cover.
func (q *Query) few(n *node, m, base uint32) (left int) {
	clear(q.next)
	for i := range n.cover {
		slot, lead := unpackCover(n.cover[i].Load())
		if lead >= m && q.holds(slot) {
			q.next[slot>>6] |= 1 << (slot & 63)
			left++
		}
	}
	q.fallen(base)
	for i := range n.cover {
		slot, lead := unpackCover(n.cover[i].Load())
		if lead != 0 && q.fell(slot) {
			q.length[slot] = base + min(lead, m)
		}
	}
	return left
}

// many is pass for a crowd.
func (q *Query) many(c *crowd, m, base uint32) (left int) {
	all := c.lead >= m
	for i := range q.active {
		q.next[i] = 0
		if all && q.active[i] != 0 && i < len(c.set) {
			q.next[i] = q.active[i] & c.set[i].Load()
		}
	}
	yield()
	list := c.list[:c.count.Load()]
	for i := range list {
		slot, lead := unpackCover(list[i].Load())
		if lead >= m && q.holds(slot) {
			q.next[slot>>6] |= 1 << (slot & 63)
		}
		yield()
	}
	same := true
	for i, set := range q.next {
		left += bits.OnesCount64(set)
		same = same && set == q.active[i]
	}
	if same {
		return left
	}
	q.fallen(base)
	if !all {
		for i := range min(len(c.set), len(q.active)) {
			q.settle(i, q.active[i]&^q.next[i]&c.set[i].Load(), base+c.lead)
		}
	}
	for i := range list {
		slot, lead := unpackCover(list[i].Load())
		if lead != 0 && q.fell(slot) {
			q.length[slot] = base + min(lead, m)
		}
	}
	return left
}

// holds tells whether a slot is active.
func (q *Query) holds(slot uint32) bool {
	return int(slot>>6) < len(q.active) && q.active[slot>>6]>>(slot&63)&1 != 0
}

// fell tells whether a slot was active and is not any more.
func (q *Query) fell(slot uint32) bool {
	return q.holds(slot) && q.next[slot>>6]>>(slot&63)&1 == 0
}

// fallen gives those who are not active any more the length of what was before.
func (q *Query) fallen(base uint32) {
	for i, set := range q.active {
		if lost := set &^ q.next[i]; lost != 0 {
			q.settle(i, lost, base)
		}
	}
}

// passAlone is pass for the only one who is active.
func (t *Trie) passAlone(q *Query, n *node, id uint32, blocks []kvcache.BlockHash, base uint32) (m, left int) {
	i := 0
	for q.active[i] == 0 {
		i++
	}
	slot := uint32(64*i + bits.TrailingZeros64(q.active[i]))
	for {
		v := n.stable()
		m = match(t.words(n.run.Load()), blocks)
		yield()
		lead := t.leadOf(n, id, slot)
		if n.version.Load() != v {
			continue
		}
		if lead >= uint32(m) {
			return m, 1
		}
		q.length[slot] = base + lead
		q.active[i] = 0
		return m, 0
	}
}
