package runtrie

import (
	"runtime"
	"sync/atomic"
)

const (
	readers = 64 // that may be pinned at a time
	batch   = 64 // numbers are given back together
)

// The kinds of numbers that are used again.
const (
	nodeGone = iota
	areaGone
	slotGone
)

// retired is a number that may be used again when nobody can see what it was.
type retired struct {
	epoch uint64
	what  uint8
	n     uint32
}

// epochs say what readers may still look at: one that is pinned at an epoch sees
// nothing that was retired before it.
type epochs struct {
	now  atomic.Uint64 // from 1, less 1
	pins [readers]pin

	waiting []retired // in order; writers alone
	since   int       // retired since the epoch began
}

// pin is the epoch that a reader is pinned at, 0 for none, on a cache line of its own.
type pin struct {
	epoch atomic.Uint64
	_     [56]byte
}

// enter pins a reader, at the place of its last time if that is free.
func (e *epochs) enter(place int) int {
	for i := place; ; i++ {
		if i > place && (i-place)%readers == 0 {
			runtime.Gosched()
		}
		if p := &e.pins[i%readers]; p.epoch.Load() == 0 && p.epoch.CompareAndSwap(0, e.now.Load()+1) {
			return i % readers
		}
	}
}

func (e *epochs) leave(place int) { e.pins[place].epoch.Store(0) }

// retire has a number used again when no reader can see what it was.
func (t *Trie) retire(r retired) {
	e := &t.epochs
	r.epoch = e.now.Load() + 1
	e.waiting = append(e.waiting, r)
	if e.since++; e.since >= batch {
		t.Reclaim()
	}
}

// Reclaim gives back what nobody can see. It happens by itself with every few nodes that
// go; after many it is worth a call.
func (t *Trie) Reclaim() {
	e := &t.epochs
	e.since = 0
	e.now.Add(1)
	oldest := ^uint64(0)
	for i := range e.pins {
		if at := e.pins[i].epoch.Load(); at != 0 {
			oldest = min(oldest, at)
		}
	}
	done := 0
	for done < len(e.waiting) && e.waiting[done].epoch < min(oldest, e.now.Load()+1) {
		switch r := e.waiting[done]; r.what {
		case nodeGone:
			t.nodes.release(r.n)
		case areaGone:
			t.areas.release(r.n)
		case slotGone:
			t.slots.free = append(t.slots.free, r.n)
		}
		done++
	}
	e.waiting = e.waiting[:copy(e.waiting, e.waiting[done:])]
	if cap(e.waiting) > 4*(len(e.waiting)+batch) {
		e.waiting = append(make([]retired, 0, len(e.waiting)+batch), e.waiting...)
	}
	if len(e.waiting) == 0 && t.nodes.used() == 0 {
		t.reset()
	}
}

// reset gives back all memory of a trie in which nothing is held and of which no reader
// sees more than the root.
func (t *Trie) reset() {
	if t.nodes.fresh == 1 {
		return
	}
	t.nodes.reset()
	t.areas.reset()
	t.children.table.Store(newChildTable(minChildren))
	t.children.spoiled = 0
	t.salts.all, t.salts.free = make([]salted, 1), nil
	t.epochs.waiting = nil
	t.moved, t.hand = 0, 0
}
