package lora

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/routerd/routerd/fleet"
)

// DefaultSlots is how many adapters a worker holds where nobody says otherwise.
const DefaultSlots = 4

// AllocatorConfig sets how an Allocator estimates and how fast it shrinks.
type AllocatorConfig struct {
	// Window is over what time arrivals are counted, in whole seconds.
	Window time.Duration
	// Alpha is the weight of the newest count in the smoothed load, above 0 and at
	// most 1.
	Alpha float64
	// Cooldown is how many ticks in a row an adapter must want fewer replicas
	// before it loses one.
	Cooldown int
}

// DefaultStep is the time between ticks for which DefaultAllocatorConfig is made.
const DefaultStep = 3 * time.Second

// DefaultAllocatorConfig is made for a tick each 3 s: arrivals of 90 s (30 steps,
// at least 5 s), a weight of 0.3 for the newest count, 3 ticks of cooldown.
func DefaultAllocatorConfig() AllocatorConfig {
	return AllocatorConfig{Window: max(5*time.Second, 30*DefaultStep), Alpha: 0.3, Cooldown: 3}
}

// Validate reports the first field that is out of range as a *fleet.FieldError.
func (c AllocatorConfig) Validate() error {
	switch {
	case c.Window < time.Second || c.Window > time.Hour:
		return &fleet.FieldError{Field: "window", Value: c.Window.String(), Allowed: "1s to 1h"}
	case !(c.Alpha > 0 && c.Alpha <= 1):
		return &fleet.FieldError{Field: "alpha", Value: strconv.FormatFloat(c.Alpha, 'g', -1, 64), Allowed: "above 0, at most 1"}
	case c.Cooldown < 1 || c.Cooldown > 1000:
		return &fleet.FieldError{Field: "cooldown", Value: strconv.Itoa(c.Cooldown), Allowed: "1 to 1000"}
	}
	return nil
}

// Worker is a worker of the partition as it stands at a tick.
type Worker struct {
	ID fleet.WorkerID
	// Slots is how many adapters it can hold.
	Slots int
	// Loaded are the adapters that it has loaded, managed or not. One that is
	// still being loaded is not among them, one that is about to be unloaded is.
	Loaded []string
	// Manage are the adapters that may be loaded and unloaded there; none for a
	// worker that is not managed.
	Manage []string
}

// Action is a change of what a worker has loaded. The same action comes again at
// each tick until the worker's Loaded shows that it was done, and no longer once
// it is not wanted any more.
type Action struct {
	Worker  fleet.WorkerID
	Adapter string
	Load    bool // false: unload
}

// Allocator plans where the adapters of one partition are loaded. It is safe for
// concurrent use; Arrived never waits for a Tick to be planned.
type Allocator struct {
	cfg AllocatorConfig

	ticking  sync.Mutex // held through a Tick; guards plans and overflow; before mu
	plans    map[string]*plan
	overflow int

	mu       sync.Mutex // guards origin, arrivals and the windows in it
	origin   time.Time
	arrivals map[string]*window
}

// plan is what the allocator remembers of one adapter.
type plan struct {
	adapter string
	raw     uint64  // arrivals in the window
	load    float64 // smoothed
	wanted  int     // replicas
	low     int     // ticks in a row that wanted fewer replicas than there are
	peak    int     // the most that one of them wanted
	set     []fleet.WorkerID
}

func (p *plan) active() bool { return p.raw > 0 }

// NewAllocator makes an allocator that manages nothing until its first Tick. cfg
// must be valid.
func NewAllocator(cfg AllocatorConfig) *Allocator {
	return &Allocator{cfg: cfg, plans: map[string]*plan{}, arrivals: map[string]*window{}}
}

// Arrived counts a request for the adapter. One that the last Tick did not know
// as managed is not counted, so that names out of requests fill no memory.
func (a *Allocator) Arrived(adapter string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.arrivals[adapter]; w != nil {
		w.add(a.second(now))
	}
}

// second counts the seconds since the first Tick; mu must be held.
func (a *Allocator) second(now time.Time) int64 { return int64(now.Sub(a.origin) / time.Second) }

// Tick plans anew for the workers as they stand, ready ones only, with distinct
// ids, and returns where the adapters belong and what is to be done for it: first
// what is to be unloaded, each by worker and adapter. An adapter that no worker
// manages any more is forgotten. The workers and their slices are not kept.
func (a *Allocator) Tick(now time.Time, workers []Worker) (*Allocation, []Action) {
	a.ticking.Lock()
	defer a.ticking.Unlock()
	f := newFloor(workers)
	a.follow(f)
	a.count(now)
	order := a.byLoad()
	a.resize(f, order)
	a.overflow = f.place(order)
	return f.allocation(order), f.actions(order)
}

// Overflow is how many active adapters the last Tick placed in spite of the
// slots.
func (a *Allocator) Overflow() int {
	a.ticking.Lock()
	defer a.ticking.Unlock()
	return a.overflow
}

// follow makes the plans those of the adapters that are managed. What a worker
// has loaded when an adapter is first seen is its placement.
func (a *Allocator) follow(f *floor) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for adapter := range a.plans {
		if f.sites[adapter] == nil {
			delete(a.plans, adapter)
			delete(a.arrivals, adapter)
		}
	}
	for adapter := range f.sites {
		if a.plans[adapter] == nil {
			a.plans[adapter] = &plan{adapter: adapter, set: f.loaded(adapter)}
			a.arrivals[adapter] = newWindow(a.cfg.Window)
		}
	}
}

// count takes the arrivals of the window into each adapter's load.
func (a *Allocator) count(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.origin.IsZero() {
		a.origin = now
	}
	for adapter, p := range a.plans {
		p.raw = a.arrivals[adapter].total(a.second(now))
		if p.load == 0 {
			p.load = float64(p.raw)
			continue
		}
		p.load = a.cfg.Alpha*float64(p.raw) + (1-a.cfg.Alpha)*p.load
	}
}

// byLoad lists the plans: active ones first, then by load, then by name.
func (a *Allocator) byLoad() []*plan {
	return slices.SortedFunc(maps.Values(a.plans), func(p, q *plan) int {
		switch {
		case p.active() != q.active():
			return cmp.Compare(q.raw, p.raw) // one of them is 0
		case p.load != q.load && p.active():
			return cmp.Compare(q.load, p.load)
		}
		return cmp.Compare(p.adapter, q.adapter)
	})
}

// resize says how many replicas each adapter wants on managed workers: its share
// of all slots, whole ones, at least 1 and at most one a worker; 1 for an adapter
// that is not active. Unmanaged workers that have it count as replicas. What is
// placed shrinks only after the cooldown, and then to the most that was wanted
// meanwhile.
func (a *Allocator) resize(f *floor, order []*plan) {
	var sum float64
	for _, p := range order {
		if p.active() {
			sum += p.load
		}
	}
	for _, p := range order {
		want := 1
		if p.active() {
			want = max(1, int(p.load/sum*float64(f.slots)+1e-9))
		}
		want = min(max(0, want-len(f.fixed[p.adapter])), len(f.sites[p.adapter]))
		have := f.keep(p)
		if want >= have {
			p.wanted, p.low, p.peak = want, 0, 0
			continue
		}
		p.low, p.peak = p.low+1, max(p.peak, want)
		p.wanted = have
		if p.low >= a.cfg.Cooldown {
			p.wanted, p.low, p.peak = p.peak, 0, 0
		}
	}
}
