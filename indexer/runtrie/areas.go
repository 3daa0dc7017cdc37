package runtrie

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/routerd/routerd/kvcache"
)

const (
	pageShift = 13 // of the words of a page: 64 KiB
	pageWords = 1 << pageShift
	maxPages  = 1 << (32 - pageShift)
)

type areaPage [pageWords]kvcache.BlockHash

// areas keeps the hashes of the runs. An area is named by the number of its first word
// over all pages. Writers hold the trie's lock.
type areas struct {
	pages atomic.Pointer[[]*areaPage]

	meta  []pageMeta        // by page
	free  []uint32          // numbers of pages that were let go
	space [classes][]uint32 // by class, pages that have room or had it lately

	used    int64        // words of all areas in use
	leaving int          // pages that go when they are empty
	idle    [classes]int // by class, pages in space that are empty
	freed   int64        // words that came free since empty last looked
}

// pageMeta is what writers know of a page, which has areas of one class.
type pageMeta struct {
	class   uint8
	live    bool   // there is a page
	listed  bool   // in space
	leaving bool   // it goes when it is empty
	used    uint32 // areas in use
	fresh   uint32 // areas from here on were never used
	chain   uint32 // the first word of a free area, plus 1; it holds the next one's
}

func newAreas() *areas {
	a := &areas{}
	a.pages.Store(&[]*areaPage{})
	return a
}

// reset lets go of all pages.
func (a *areas) reset() {
	a.meta, a.free, a.space, a.used, a.leaving, a.idle, a.freed = nil, nil, [classes][]uint32{}, 0, 0, [classes]int{}, 0
	a.pages.Store(&[]*areaPage{})
}

// classOf is the smallest class that has n words.
func classOf(n uint32) uint8 { return uint8(bits.Len32(n - 1)) }

// words are the words of an area from its first on.
func (a *areas) words(at uint32) []kvcache.BlockHash {
	return (*a.pages.Load())[at>>pageShift][at&(pageWords-1):]
}

// alloc returns an area of a class, and false when there are too many pages.
func (a *areas) alloc(class uint8) (at uint32, ok bool) {
	if at, ok = a.take(class); ok {
		a.used += 1 << class
	}
	return at, ok
}

func (a *areas) take(class uint8) (uint32, bool) {
	for len(a.space[class]) > 0 {
		list := a.space[class]
		id := list[len(list)-1]
		m := &a.meta[id]
		if m.used == 0 {
			a.idle[class]--
		}
		switch {
		case m.chain != 0:
			at := m.chain - 1
			m.chain = uint32((*a.pages.Load())[id][at])
			m.used++
			return id<<pageShift | at, true
		case m.fresh < pageWords>>class:
			at := m.fresh << class
			m.fresh++
			m.used++
			return id<<pageShift | at, true
		}
		m.listed = false
		a.space[class] = list[:len(list)-1]
	}
	return a.grow(class)
}

// grow makes a page and returns its first area.
func (a *areas) grow(class uint8) (uint32, bool) {
	now := *a.pages.Load()
	id := uint32(len(now))
	switch n := len(a.free); {
	case n > 0:
		id, a.free = a.free[n-1], a.free[:n-1]
		now = slices.Clone(now)
	case id == maxPages:
		return 0, false
	default:
		now = append(now, nil) // whoever reads the shorter list does not see the new element
		a.meta = append(a.meta, pageMeta{})
	}
	page := new(areaPage)
	now[id] = page
	a.meta[id] = pageMeta{class: class, live: true, listed: true, used: 1, fresh: 1}
	a.pages.Store(&now)
	a.space[class] = append(a.space[class], id)
	return id << pageShift, true
}

// release takes an area back that nobody can see any more.
func (a *areas) release(at uint32) {
	id := at >> pageShift
	m := &a.meta[id]
	m.used--
	a.used -= 1 << m.class
	a.freed += 1 << m.class
	switch {
	case m.used == 0 && (m.leaving || a.idle[m.class] > 0):
		a.drop(id)
		return
	case m.leaving:
		return
	case m.used == 0:
		a.idle[m.class]++ // else a few areas that come and go would be a page that comes and goes
	}
	page := (*a.pages.Load())[id]
	page[at&(pageWords-1)] = kvcache.BlockHash(m.chain)
	m.chain = at&(pageWords-1) + 1
	if !m.listed {
		m.listed = true
		a.space[m.class] = append(a.space[m.class], id)
	}
}

// drop lets go of a page without used areas.
func (a *areas) drop(id uint32) {
	a.unlist(id)
	if a.meta[id].leaving {
		a.leaving--
	}
	a.meta[id] = pageMeta{}
	now := slices.Clone(*a.pages.Load())
	now[id] = nil
	a.pages.Store(&now)
	a.free = append(a.free, id)
}

// unlist has a page no longer be one that has room.
func (a *areas) unlist(id uint32) {
	m := &a.meta[id]
	m.listed = false
	if i := slices.Index(a.space[m.class], id); i >= 0 {
		a.space[m.class] = slices.Delete(a.space[m.class], i, i+1)
	}
}
