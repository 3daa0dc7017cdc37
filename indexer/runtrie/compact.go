package runtrie

import (
	"cmp"
	"slices"
)

const (
	compactStep = 128 // nodes that a call looks at
	lookShare   = 128 // of the words of all pages, that come free between two looks at all pages
)

// Compact moves runs out of the emptiest pages of areas, which then go, when less than so many eighths of the words
// of all pages are used. A call looks at some nodes and goes on where the last one ended; it reports whether there
// is more to do. Readers notice nothing: a run is copied, and where it was is used again when nobody can see it.
func (t *Trie) Compact(eighths int64) (more bool) {
	if t.moved == 0 {
		if !t.areas.sparse(eighths) || !t.areas.empty() {
			return false
		}
		t.moved = 1
	}
	for end := min(t.moved+compactStep, t.nodes.fresh); t.moved < end; t.moved++ {
		t.moveOut(t.moved)
	}
	if t.moved < t.nodes.fresh {
		return true
	}
	t.moved = 0
	t.Reclaim()
	return false
}

// moveOut copies the run of a node out of a page that shall go.
func (t *Trie) moveOut(id uint32) {
	n := t.nodes.at(id)
	if n.idle() {
		return // nobody's; it may have been before
	}
	area, length := unpackRun(n.run.Load())
	if !t.areas.meta[area>>pageShift].leaving {
		return
	}
	to, ok := t.areas.alloc(n.class)
	if !ok {
		return
	}
	copy(t.areas.words(to)[:length], t.areas.words(area)[:length])
	n.run.Store(packRun(to, length))
	t.retire(retired{what: areaGone, n: area})
}

// sparse tells whether less than so many eighths of the words of all pages are used, but for those of a few pages, and
// whether enough came free since the last look at all pages to take another one.
func (a *areas) sparse(eighths int64) bool {
	pages := int64(len(a.meta) - len(a.free) - a.leaving)
	return pages > classes && a.used*8 < pages*pageWords*eighths && a.freed >= max(pageWords/8, pages*pageWords/lookShare)
}

// empty chooses the pages that shall go, so that the others of each class are full but for a ninth, and reports whether
// there are any. Nothing is put into them any more.
func (a *areas) empty() (any bool) {
	a.freed = 0
	var of [classes][]uint32
	for id := range a.meta {
		if m := &a.meta[id]; m.live && !m.leaving {
			of[m.class] = append(of[m.class], uint32(id))
		}
	}
	for class, pages := range of {
		used := uint32(0)
		for _, id := range pages {
			used += a.meta[id].used
		}
		room := uint32(pageWords >> class)
		keep := min(int((used+used/8+room-1)/room), len(pages))
		slices.SortFunc(pages, func(p, q uint32) int { return cmp.Compare(a.meta[q].used, a.meta[p].used) })
		for _, id := range pages[keep:] {
			a.leave(id)
			any = true
		}
	}
	return any
}

// leave has a page go as soon as it is empty.
func (a *areas) leave(id uint32) {
	m := &a.meta[id]
	a.unlist(id)
	m.leaving = true
	a.leaving++
	if m.used == 0 {
		a.idle[m.class]--
		a.drop(id)
	}
}
