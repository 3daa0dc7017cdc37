package host

import (
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// memoryBudget bounds the guest memory of all instances together. What counts
// is the size that a guest sees (its pages so far): an upper bound of what it
// touched, since the pages behind it are only there once they are written.
type memoryBudget struct {
	limit  atomic.Int64
	used   atomic.Int64 // bytes that guests see
	mapped atomic.Int64 // bytes of address space reserved
}

// take counts n more bytes; false when that would pass the limit, or for what is
// aside three quarters of it: a shadow or a trial must not starve what requests
// wait for.
func (b *memoryBudget) take(n int64, aside bool) bool {
	for {
		used, limit := b.used.Load(), b.limit.Load()
		if aside {
			limit -= limit / 4
		}
		if used+n > limit {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (b *memoryBudget) give(n int64) { b.used.Add(-n) }

// allocator hands out the memory of one instance. The first size is taken from
// the budget by take, since the engine cannot be told of a refusal when it asks;
// growth is taken as it happens and refused by returning nil, which the guest
// sees as -1. Owned by the one goroutine that uses the instance.
type allocator struct {
	budget  *memoryBudget
	reserve bool  // address space is reserved once, so that memory never moves
	aside   bool  // takes only of what the budget has for such
	taken   int64 // of the budget
	refused int   // how often the budget had no more to grow
	memory  linearMemory
}

var _ experimental.MemoryAllocator = (*allocator)(nil)

// take takes the first size from the budget.
func (a *allocator) take(n int64) bool {
	if !a.budget.take(n, a.aside) {
		return false
	}
	a.taken = n
	return true
}

// Allocate reserves max bytes where that is possible, else it falls back to
// ordinary memory.
func (a *allocator) Allocate(_, max uint64) experimental.LinearMemory {
	a.memory.owner = a
	if !a.reserve {
		return &a.memory
	}
	if region, err := reserveMemory(max); err == nil {
		a.memory.region = region
		a.memory.reserved = true
		a.budget.mapped.Add(int64(len(region)))
	}
	return &a.memory
}

// free gives memory and budget back. Further calls do nothing.
func (a *allocator) free() {
	a.memory.Free()
	a.budget.give(a.taken)
	a.taken = 0
}

// linearMemory is the memory of one instance.
type linearMemory struct {
	owner    *allocator
	region   []byte // reserved: all of it; else: what is in use
	reserved bool
}

// Reallocate makes the memory size bytes long.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if more := int64(size) - m.owner.taken; more > 0 {
		if !m.owner.budget.take(more, m.owner.aside) {
			m.owner.refused++
			return nil
		}
		m.owner.taken += more
	}
	if m.reserved {
		return m.region[:size:len(m.region)]
	}
	if size > uint64(len(m.region)) {
		grown := make([]byte, size)
		copy(grown, m.region)
		m.region = grown
	}
	return m.region
}

// Free unmaps. The engine calls it when the instance is closed, and free once
// more, since an instance whose start section trapped is never closed.
func (m *linearMemory) Free() {
	if m.reserved {
		m.owner.budget.mapped.Add(-int64(len(m.region)))
		releaseMemory(m.region)
	}
	m.region, m.reserved = nil, false
}
