package runtrie

import (
	"unsafe"

	"github.com/routerd/routerd/kvcache"
)

// Bytes is the memory of the trie. It takes no walk.
func (t *Trie) Bytes() int64 {
	n, a, s := t.nodes, t.areas, t.salts
	total := HeapBytes(int(unsafe.Sizeof(*t))) + int64(cap(t.epochs.waiting))*int64(unsafe.Sizeof(retired{}))
	total += int64(len(*n.pages.Load()))*nodePageBytes + sliceBytes(*n.pages.Load()) + sliceBytes(n.free)
	total += int64(len(a.meta)-len(a.free))*int64(unsafe.Sizeof(areaPage{})) + sliceBytes(*a.pages.Load()) + sliceBytes(a.meta) + sliceBytes(a.free)
	for _, space := range a.space {
		total += sliceBytes(space)
	}
	total += sliceBytes(t.children.table.Load().slots)
	total += s.numbers.Bytes() + sliceBytes(s.all) + sliceBytes(s.free)
	total += sliceBytes(t.slots.all) + sliceBytes(t.slots.free)
	total += int64(len(t.slots.all)-len(t.slots.free)) * HeapBytes(int(unsafe.Sizeof(Holder{})))
	return total + t.holes + t.crowds
}

// Used is how much of Bytes is in use: the rest is room in pages of which something is.
func (t *Trie) Used() int64 {
	n, a := t.nodes, t.areas
	nodes := int64(len(*n.pages.Load()))*nodePageBytes - int64(n.used())*nodePageBytes/nodePage
	words := int64(len(a.meta)-len(a.free))*pageWords - a.used
	return t.Bytes() - nodes - words*int64(unsafe.Sizeof(kvcache.BlockHash(0)))
}

const nodePageBytes = int64(nodePage) * int64(unsafe.Sizeof(node{})+unsafe.Sizeof(uintptr(0)))

func sliceBytes[E any](s []E) int64 {
	var e E
	return HeapBytes(cap(s) * int(unsafe.Sizeof(e)))
}

// bytes is the memory of a crowd.
func (c *crowd) bytes() int64 {
	return HeapBytes(int(unsafe.Sizeof(*c))) + sliceBytes(c.set) + sliceBytes(c.list)
}

// Ahead is about how many bytes the trie may grow by when blocks are stored.
func (t *Trie) Ahead(blocks int) (total int64) {
	a, c := t.areas, t.children
	const page = int64(unsafe.Sizeof(areaPage{}))
	if free := int64(len(a.meta)-len(a.free))*pageWords - a.used; int64(4*blocks) > free {
		total += int64(16*blocks+int(page)-1) / page * page
	}
	if len(t.nodes.free) < 2+blocks/Run && t.nodes.fresh%nodePage+uint32(2+blocks/Run) >= nodePage {
		total += nodePageBytes * int64(1+blocks/Run/nodePage)
	}
	if slots := len(c.table.Load().slots); (c.used+c.spoiled+2+blocks/Run)*3 > slots*2 {
		total += int64(slots) * 8
	}
	return total + page
}
