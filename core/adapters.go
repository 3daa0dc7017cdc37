package core

import (
	"maps"
	"slices"
	"time"

	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// adapterTable is an immutable picture of where a partition's adapters are loaded
// and where they belong. A nil table knows what the workers' records list.
type adapterTable struct {
	allocation *lora.Allocation // nil where nobody manages adapters
	states     map[adapterOn]adapterState
	slots      map[fleet.WorkerID]int // of managed workers
	names      []string               // managed or loaded, sorted
}

type adapterOn struct {
	worker  fleet.WorkerID
	adapter string
}

type adapterState struct {
	generation uint64 // of the worker's record
	state      lora.State
}

// adapterUse is what a worker does with an adapter.
type adapterUse struct {
	running int
	last    time.Time // when it was booked last
}

// useMemory is how long a use is remembered that is not running any more.
const useMemory = time.Hour

// copied is a copy to be changed.
func (t *adapterTable) copied() *adapterTable {
	out := &adapterTable{states: map[adapterOn]adapterState{}}
	if t != nil {
		*out = *t
		out.states = maps.Clone(t.states)
	}
	return out
}

// state is where a worker stands with an adapter: what was said of it counts more
// than its record.
func (t *adapterTable) state(m *member, adapter string) lora.State {
	if t != nil {
		if s, ok := t.states[adapterOn{m.record.ID, adapter}]; ok && s.generation == m.generation {
			return s.state
		}
	}
	if slices.ContainsFunc(m.record.Adapters, func(a fleet.Adapter) bool { return a.Name == adapter }) {
		return lora.Loaded
	}
	return lora.Absent
}

// serves tells whether a worker can serve a request for an adapter, empty for the
// base model: engines refuse one that they have not loaded.
func (t *adapterTable) serves(m *member, adapter string) bool {
	return adapter == "" || t.state(m, adapter) == lora.Loaded
}

// narrow leaves the workers of an adapter's replica set among the candidates. A
// pinned worker stays whatever the allocation says.
func (a *attempt) narrow(v *view, t *adapterTable) {
	if a.req.Adapter == "" || a.req.Pin != nil || t == nil || t.allocation == nil {
		return
	}
	universe := a.universe[:0]
	for i, row := range a.rows {
		if m := v.rows[row].member; i == 0 || m != v.rows[a.rows[i-1]].member {
			universe = append(universe, lora.Candidate{Worker: m.record.ID, State: t.state(m, a.req.Adapter), RegistrationRequired: true})
		}
	}
	n := len(universe)
	keep := slices.Grow(a.keep[:0], n)[:n]
	lora.Narrow(t.allocation, a.req.Adapter, universe, keep)
	a.universe, a.keep = universe, keep
	kept, at := a.rows[:0], -1
	var last *member
	for _, row := range a.rows {
		if m := v.rows[row].member; m != last {
			last, at = m, at+1
		}
		if keep[at] {
			kept = append(kept, row)
		}
	}
	a.rows = kept
}

// PlanAdapters makes one step of every partition's allocation for the workers as
// they stand, publishes it to the decisions that follow and returns what is to be
// done in all partitions. The workers may be of any partition; one that is not
// known is left out. An adapter in a worker's Manage or Loaded belongs to the base
// model of the worker's partition, so that requests for it are known from then on;
// as does one that a worker was told to have loaded (SetAdapterState), whether the
// worker is among these or not. Nothing of workers is kept. Calls must not overlap.
func (c *SelectionCore) PlanAdapters(now time.Time, workers []lora.Worker) (actions []lora.Action) {
	byPartition := map[*Partition][]lora.Worker{}
	c.members.Lock()
	dir := c.directory.Load()
	for _, w := range workers {
		if entry, ok := dir.workers[w.ID]; ok {
			byPartition[entry.partition] = append(byPartition[entry.partition], w)
		}
	}
	c.members.Unlock()
	for _, p := range dir.ordered() {
		mine := byPartition[p]
		if len(mine) == 0 && p.adapters.Load() == nil {
			continue
		}
		allocation, todo := p.allocator.Tick(now, mine)
		actions = append(actions, todo...)
		p.changeAdapters(func(t *adapterTable) { t.plan(allocation, mine, p.view.Load()) })
	}
	c.nameAdapters()
	return actions
}

// plan takes over a step's outcome. v are the partition's workers.
func (t *adapterTable) plan(allocation *lora.Allocation, workers []lora.Worker, v *view) {
	t.allocation, t.slots, t.names = allocation, map[fleet.WorkerID]int{}, nil
	for _, w := range workers {
		if len(w.Manage) > 0 {
			t.slots[w.ID] = w.Slots
		}
		t.names = append(append(t.names, w.Manage...), w.Loaded...)
	}
	for on, s := range t.states {
		if m := v.byID[on.worker]; s.state == lora.Loaded && m != nil && m.generation == s.generation {
			t.names = append(t.names, on.adapter)
		}
	}
	slices.Sort(t.names)
	t.names = slices.Compact(t.names)
}

// SetAdapterState tells where a worker stands with an adapter. It counts more than
// what the worker's record lists, until the worker leaves or it is taken back
// (ForgetAdapterState). One for a worker that is not known is ignored. Safe for
// concurrent use; a call that changes nothing costs next to nothing.
func (c *SelectionCore) SetAdapterState(worker fleet.WorkerID, adapter string, state lora.State) {
	c.members.Lock()
	defer c.members.Unlock()
	entry, ok := c.directory.Load().workers[worker]
	if !ok {
		return
	}
	p := entry.partition
	m := p.view.Load().byID[worker]
	on, next := adapterOn{worker, adapter}, adapterState{m.generation, state}
	if t := p.adapters.Load(); t != nil && t.states[on] == next {
		return
	}
	p.changeAdapters(func(t *adapterTable) {
		maps.DeleteFunc(t.states, func(k adapterOn, s adapterState) bool { // of workers that have left
			m := p.view.Load().byID[k.worker]
			return m == nil || m.generation != s.generation
		})
		t.states[on] = next
	})
}

// ForgetAdapterState takes back what SetAdapterState told of a worker and an
// adapter: what the worker's record lists counts again. Where nothing was told it
// changes nothing. Safe for concurrent use.
func (c *SelectionCore) ForgetAdapterState(worker fleet.WorkerID, adapter string) {
	c.members.Lock()
	defer c.members.Unlock()
	entry, ok := c.directory.Load().workers[worker]
	if !ok {
		return
	}
	on := adapterOn{worker, adapter}
	if t := entry.partition.adapters.Load(); t != nil {
		if _, told := t.states[on]; told {
			entry.partition.changeAdapters(func(t *adapterTable) { delete(t.states, on) })
		}
	}
}

// changeAdapters publishes a changed table and lets go on who can.
func (p *Partition) changeAdapters(change func(*adapterTable)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.adapters.Load().copied()
	change(next)
	p.adapters.Store(next)
	p.pump()
}

// AdapterUses counts the bookings on a worker that are for an adapter.
func (c *SelectionCore) AdapterUses(worker fleet.WorkerID, adapter string) int {
	entry, ok := c.directory.Load().workers[worker]
	if !ok {
		return 0
	}
	p := entry.partition
	p.mu.Lock()
	defer p.mu.Unlock()
	if u := p.uses[adapterOn{worker, adapter}]; u != nil {
		return u.running
	}
	return 0
}

// use counts a booking for an adapter. mu must be held.
func (p *Partition) use(on adapterOn, now time.Time) {
	if on.adapter == "" {
		return
	}
	u := p.uses[on]
	if u == nil {
		maps.DeleteFunc(p.uses, func(_ adapterOn, u *adapterUse) bool { return u.running == 0 && now.Sub(u.last) > useMemory })
		u = &adapterUse{}
		p.uses[on] = u
	}
	if u.running++; u.running == 1 {
		p.inUse[on.worker]++
	}
	u.last = now
}

// unuse takes a booking for an adapter back. mu must be held.
func (p *Partition) unuse(on adapterOn) {
	u := p.uses[on]
	if u == nil || u.running == 0 {
		return
	}
	if u.running--; u.running > 0 {
		return
	}
	if p.inUse[on.worker]--; p.inUse[on.worker] == 0 {
		delete(p.inUse, on.worker)
	}
}

// noteUses copies what the candidates do with adapters. mu must be held.
func (p *Partition) noteUses(a *attempt) {
	a.inUse = a.inUse[:0]
	if a.req.Adapter == "" {
		return
	}
	for _, row := range a.rows {
		id := a.view.rows[row].worker.ID
		noted := adaptersNoted{active: p.inUse[id]}
		if u := p.uses[adapterOn{id, a.req.Adapter}]; u != nil {
			noted.use = *u
		}
		a.inUse = append(a.inUse, noted)
	}
}

// adaptersNoted is what one candidate does with adapters.
type adaptersNoted struct {
	active int        // distinct adapters with bookings
	use    adapterUse // of the request's adapter
}

// replicas counts where the request's adapter is and should be.
func (a *attempt) replicas(t *adapterTable) (n policy.Adapter) {
	if t != nil {
		set, _, _ := t.allocation.Of(a.req.Adapter)
		n.Wanted = len(set)
	}
	for _, m := range a.view.members {
		switch t.state(m, a.req.Adapter) {
		case lora.Loaded:
			n.Loaded++
		case lora.Loading:
			n.Loading++
		case lora.Absent:
		}
	}
	return n
}

// fillAdapters writes what is known of the request's adapter on each candidate.
func (a *attempt) fillAdapters(now time.Time) {
	if a.req.Adapter == "" {
		return
	}
	t := a.placed
	a.table.Adapter = a.replicas(t)
	at := func(f func(*viewRow, *adaptersNoted) (float64, bool)) func(*viewRow) (float64, bool) {
		i := -1
		return func(r *viewRow) (float64, bool) { i++; return f(r, &a.inUse[i]) }
	}
	a.each(abi.ColLoraLoaded, func(*viewRow) (float64, bool) { return 1, true }) // who has not is no candidate
	a.each(abi.ColLoraLoading, func(*viewRow) (float64, bool) { return 0, true })
	a.each(abi.ColLoraActive, at(func(_ *viewRow, n *adaptersNoted) (float64, bool) { return float64(n.active), true }))
	a.each(abi.ColLoraIsActive, at(func(_ *viewRow, n *adaptersNoted) (float64, bool) { return flag(n.use.running > 0), true }))
	a.each(abi.ColLoraLastUsedMs, at(func(_ *viewRow, n *adaptersNoted) (float64, bool) {
		return max(millis(now.Sub(n.use.last)), 0), !n.use.last.IsZero()
	}))
	a.each(abi.ColLoraMax, func(r *viewRow) (float64, bool) {
		if t == nil {
			return 0, false
		}
		slots, ok := t.slots[r.worker.ID]
		return float64(slots), ok
	})
	a.each(abi.ColLoraInReplicaSet, func(r *viewRow) (float64, bool) {
		if t == nil || t.allocation == nil {
			return 0, false
		}
		return flag(t.allocation.Holds(a.req.Adapter, r.worker.ID)), true
	})
}
