package lora

import (
	"slices"

	"github.com/routerd/routerd/fleet"
)

// Set is where one adapter should be loaded.
type Set struct {
	Adapter string
	// Workers is its replica set in rendezvous order.
	Workers []fleet.WorkerID
	// Active tells that it had arrivals in the window.
	Active bool
}

// Allocation is the replica sets of one partition at one moment. It is immutable
// and safe for concurrent use; nil is one that lists no adapter.
type Allocation struct{ entries map[string]entry }

type entry struct {
	set    []fleet.WorkerID // in rendezvous order
	sorted []fleet.WorkerID // ascending
	active bool
}

// holds tells whether the worker is in the replica set.
func (e entry) holds(w fleet.WorkerID) bool {
	_, ok := slices.BinarySearch(e.sorted, w)
	return ok
}

// first tells whether the worker is the first of the replica set.
func (e entry) first(w fleet.WorkerID) bool { return len(e.set) > 0 && e.set[0] == w }

// NewAllocation makes an allocation of the sets, whose workers it copies and puts
// into rendezvous order. Of two sets for one adapter the later counts.
func NewAllocation(sets ...Set) *Allocation {
	a := &Allocation{entries: make(map[string]entry, len(sets))}
	for _, s := range sets {
		e := entry{set: Rendezvous(s.Adapter, s.Workers), active: s.Active}
		e.sorted = slices.Sorted(slices.Values(e.set))
		a.entries[s.Adapter] = e
	}
	return a
}

// Of returns an adapter's replica set in rendezvous order, whether the adapter is
// active and whether the allocation lists it. The set must not be changed; it may
// be empty for an adapter that is listed.
func (a *Allocation) Of(adapter string) (set []fleet.WorkerID, active, known bool) {
	e, known := a.entry(adapter)
	return e.set, e.active, known
}

// Holds tells whether a worker is in the adapter's replica set.
func (a *Allocation) Holds(adapter string, w fleet.WorkerID) bool {
	e, _ := a.entry(adapter)
	return e.holds(w)
}

func (a *Allocation) entry(adapter string) (entry, bool) {
	if a == nil {
		return entry{}, false
	}
	e, known := a.entries[adapter]
	return e, known
}
