package runtrie

import (
	"math/bits"
	"sync/atomic"

	"github.com/routerd/routerd/kvcache"
)

const (
	nodeShift = 10
	nodePage  = 1 << nodeShift
	refShift  = 7 // of the node's id in a Ref
	inline    = 4 // holders that a node has without a crowd
)

// MaxNodes is how many nodes there can be, the root included.
const MaxNodes = 1 << (32 - refShift)

// Ref is a block behind a prefix: a node and a position in it. 0 is none.
type Ref uint32

// RefOf is a position of a node.
func RefOf(id, pos uint32) Ref { return Ref(id<<refShift | pos) }

// Node returns the id of the node and the position in it.
func (r Ref) Node() (id, pos uint32) { return uint32(r) >> refShift, uint32(r) & (1<<refShift - 1) }

// Starts tells whether the block is the first of its node. It is one comparison, which in a list of many, where some are
// none, is foreseen.
func (r Ref) Starts() bool {
	return bits.RotateLeft32(uint32(r), -refShift)-1 < 1<<(32-refShift)-1
}

// node is a run of blocks. What readers look at is atomic, or does not change while
// anybody can see the node: parent and attach.
type node struct {
	run     atomic.Uint64 // its area, shifted left by 8, and its length
	version atomic.Uint32 // odd while it changes
	next    atomic.Uint32 // the child after the last position of a full run, or 0
	tag     atomic.Uint32 // the low half of that child's first hash
	kids    atomic.Uint32 // children, and crowded when the cover is in a crowd
	age     atomic.Uint32 // what the clock showed when it was last stored or found
	cover   [inline]atomic.Uint32

	parent uint32 // id
	held   uint32 // pairs of a holder and a position
	holed  uint32 // holders with holes here
	salt   uint32 // number of the chain's salt, 0 for none
	attach uint8  // offset in the parent, 0 to Run
	top    uint8  // no child is attached above
	class  uint8  // of the area
}

// crowded is a bit of a node's kids.
const crowded = 1 << 31

// children is how many children a node has.
func (n *node) children() uint32 { return n.kids.Load() &^ crowded }

// inCrowd tells whether a node's cover is in a crowd.
func (n *node) inCrowd() bool { return n.kids.Load()&crowded != 0 }

// idle tells whether nobody needs a node.
func (n *node) idle() bool { return n.held == 0 && n.children() == 0 }

func packRun(area, length uint32) uint64 { return uint64(area)<<8 | uint64(length) }

func unpackRun(run uint64) (area, length uint32) { return uint32(run >> 8), uint32(run & 0xff) }

// page is a page of nodes. The crowds are apart, so that the headers have no pointers.
type page struct {
	nodes  *[nodePage]node
	crowds *[nodePage]atomic.Pointer[crowd]
}

// nodes keeps the headers. Id 0 is the root. Writers hold the trie's lock.
type nodes struct {
	pages atomic.Pointer[[]page]
	free  []uint32
	fresh uint32 // ids from here on were never used
	most  uint32 // ids
}

func newNodes(most uint32) *nodes {
	n := &nodes{fresh: 1, most: most}
	n.pages.Store(&[]page{newPage()})
	return n
}

func newPage() page { return page{new([nodePage]node), new([nodePage]atomic.Pointer[crowd])} }

func (n *nodes) at(id uint32) *node {
	return &(*n.pages.Load())[id>>nodeShift].nodes[id&(nodePage-1)]
}

func (n *nodes) crowd(id uint32) *atomic.Pointer[crowd] {
	return &(*n.pages.Load())[id>>nodeShift].crowds[id&(nodePage-1)]
}

// alloc returns an id, and false when all are in use.
func (n *nodes) alloc() (uint32, bool) {
	if k := len(n.free); k > 0 {
		id := n.free[k-1]
		n.free = n.free[:k-1]
		return id, true
	}
	if n.fresh == n.most {
		return 0, false
	}
	if pages := *n.pages.Load(); n.fresh>>nodeShift == uint32(len(pages)) {
		pages = append(pages, newPage()) // whoever reads the shorter list does not see the new element
		n.pages.Store(&pages)
	}
	n.fresh++
	return n.fresh - 1, true
}

// release takes an id back that nobody can see any more.
func (n *nodes) release(id uint32) { n.free = append(n.free, id) }

// used is how many ids, besides the root's, are in use or wait to be.
func (n *nodes) used() int { return int(n.fresh) - 1 - len(n.free) }

// reset lets go of all pages but the root's.
func (n *nodes) reset() {
	root := []page{(*n.pages.Load())[0]}
	n.pages.Store(&root)
	n.free, n.fresh = nil, 1
}

// words are the hashes of a run.
func (t *Trie) words(run uint64) []kvcache.BlockHash {
	area, length := unpackRun(run)
	if length == 0 {
		return nil
	}
	return t.areas.words(area)[:length]
}
