package lora

import (
	"cmp"
	"slices"

	"github.com/routerd/routerd/fleet"
)

// floor is the workers of one tick with the slots that are still free.
type floor struct {
	workers []*site            // ascending by id
	sites   map[string][]*site // by adapter: the workers that manage it
	fixed   map[string][]fleet.WorkerID
	byID    map[fleet.WorkerID]*site
	slots   int // of all managed workers
}

// site is a worker within a tick.
type site struct {
	*Worker
	free   int
	loaded map[string]bool
	placed map[string]*plan
}

func (s *site) put(p *plan) { s.free--; s.placed[p.adapter] = p }

func (s *site) drop(p *plan) { s.free++; delete(s.placed, p.adapter) }

// newFloor reads the workers. What a managed worker has loaded that nobody
// manages takes a slot of its own.
func newFloor(workers []Worker) *floor {
	f := &floor{sites: map[string][]*site{}, fixed: map[string][]fleet.WorkerID{}, byID: map[fleet.WorkerID]*site{}}
	for i := range workers {
		w := &workers[i]
		s := &site{Worker: w, free: w.Slots, loaded: map[string]bool{}, placed: map[string]*plan{}}
		for _, adapter := range w.Manage {
			f.sites[adapter] = append(f.sites[adapter], s)
		}
		for _, adapter := range w.Loaded {
			s.loaded[adapter] = true
			if slices.Contains(w.Manage, adapter) {
				continue
			}
			s.free--
			f.fixed[adapter] = append(f.fixed[adapter], w.ID)
		}
		if len(w.Manage) > 0 {
			f.slots += max(0, s.free)
		}
		f.workers = append(f.workers, s)
		f.byID[w.ID] = s
	}
	slices.SortFunc(f.workers, func(a, b *site) int { return cmp.Compare(a.ID, b.ID) })
	return f
}

// loaded lists the managed workers that have the adapter.
func (f *floor) loaded(adapter string) []fleet.WorkerID {
	var ids []fleet.WorkerID
	for _, s := range f.sites[adapter] {
		if s.loaded[adapter] {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// preference lists the workers that manage the adapter: those that have it first,
// each part in rendezvous order.
func (f *floor) preference(adapter string) []*site {
	type choice struct {
		site *site
		ranked
	}
	choices := make([]choice, 0, len(f.sites[adapter]))
	for _, s := range f.sites[adapter] {
		choices = append(choices, choice{s, rank(adapter, s.ID)})
	}
	slices.SortFunc(choices, func(a, b choice) int {
		if la, lb := a.site.loaded[adapter], b.site.loaded[adapter]; la != lb {
			if la {
				return -1
			}
			return 1
		}
		return a.compare(b.ranked)
	})
	out := make([]*site, len(choices))
	for i, c := range choices {
		out[i] = c.site
	}
	return out
}

// keep drops from the plan's set the workers that have gone or no longer manage
// the adapter, and returns how many are left.
func (f *floor) keep(p *plan) int {
	p.set = slices.DeleteFunc(p.set, func(w fleet.WorkerID) bool {
		s := f.byID[w]
		return s == nil || !slices.Contains(s.Manage, p.adapter)
	})
	return len(p.set)
}

// place puts the adapters on the workers. order has the active ones first, those
// with more load before others. It returns how many overflowed.
func (f *floor) place(order []*plan) (overflow int) {
	if f.slots == 0 {
		f.keepWarm(order)
		return 0
	}
	before := make(map[*plan][]fleet.WorkerID, len(order))
	for _, p := range order {
		before[p] = p.set
		p.set = f.stay(p)
	}
	for _, p := range order {
		if p.active() && p.wanted > 0 && len(p.set) == 0 {
			overflow += f.placeFirst(p, before[p])
		}
	}
	for _, p := range order {
		f.fill(p)
	}
	return overflow
}

// keepWarm leaves each adapter where it is loaded: there is no slot to put one in.
func (f *floor) keepWarm(order []*plan) {
	for _, p := range order {
		p.set = f.loaded(p.adapter)
	}
}

// stay keeps the placements that still have a slot: as many as are wanted, those
// on workers that have the adapter first.
func (f *floor) stay(p *plan) []fleet.WorkerID {
	if len(p.set) == 0 {
		return nil
	}
	var kept []fleet.WorkerID
	for _, s := range f.preference(p.adapter) {
		if len(kept) < p.wanted && s.free > 0 && slices.Contains(p.set, s.ID) {
			s.put(p)
			kept = append(kept, s.ID)
		}
	}
	return kept
}

// placeFirst finds a place for an active adapter that has none: a free slot, else
// that of an adapter that is not active, else, in spite of the slots, where it was
// or its first worker. It returns 1 for the last.
func (f *floor) placeFirst(p *plan, before []fleet.WorkerID) (overflow int) {
	prefer := f.preference(p.adapter)
	to := slices.IndexFunc(prefer, func(s *site) bool { return s.free > 0 })
	if to < 0 {
		to = slices.IndexFunc(prefer, func(s *site) bool { return s.idle() != nil })
	}
	if to < 0 {
		to = max(0, slices.IndexFunc(prefer, func(s *site) bool { return slices.Contains(before, s.ID) }))
		overflow = 1
	} else if s := prefer[to]; s.free <= 0 {
		idle := s.idle()
		idle.set = slices.DeleteFunc(slices.Clone(idle.set), func(w fleet.WorkerID) bool { return w == s.ID })
		s.drop(idle)
	}
	prefer[to].put(p)
	p.set = append(p.set, prefer[to].ID)
	return overflow
}

// idle is the placement of an adapter that is not active, the last by name; nil
// when there is none.
func (s *site) idle() *plan {
	var last *plan
	for _, p := range s.placed {
		if !p.active() && (last == nil || p.adapter > last.adapter) {
			last = p
		}
	}
	return last
}

// fill adds replicas in free slots until there are as many as are wanted.
func (f *floor) fill(p *plan) {
	if len(p.set) >= p.wanted {
		return
	}
	for _, s := range f.preference(p.adapter) {
		if len(p.set) < p.wanted && s.free > 0 && s.placed[p.adapter] == nil {
			s.put(p)
			p.set = append(p.set, s.ID)
		}
	}
}

// allocation publishes the plans' sets, with the unmanaged workers that have the
// adapter.
func (f *floor) allocation(order []*plan) *Allocation {
	sets := make([]Set, 0, len(order))
	for _, p := range order {
		sets = append(sets, Set{Adapter: p.adapter, Workers: slices.Concat(p.set, f.fixed[p.adapter]), Active: p.active()})
	}
	return NewAllocation(sets...)
}

// actions lists what is to be unloaded, then what is to be loaded. An adapter
// stays loaded where it does not belong while nobody has it where it does.
func (f *floor) actions(order []*plan) []Action {
	var loads, unloads []Action
	for _, p := range order {
		served := len(p.set)+len(f.fixed[p.adapter]) == 0 || len(f.fixed[p.adapter]) > 0
		for _, w := range p.set {
			served = served || f.byID[w].loaded[p.adapter]
		}
		for _, s := range f.sites[p.adapter] {
			switch here := slices.Contains(p.set, s.ID); {
			case here && !s.loaded[p.adapter]:
				loads = append(loads, Action{Worker: s.ID, Adapter: p.adapter, Load: true})
			case !here && s.loaded[p.adapter] && served:
				unloads = append(unloads, Action{Worker: s.ID, Adapter: p.adapter})
			}
		}
	}
	for _, list := range [][]Action{unloads, loads} {
		slices.SortFunc(list, func(a, b Action) int {
			return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Adapter, b.Adapter))
		})
	}
	return append(unloads, loads...)
}
