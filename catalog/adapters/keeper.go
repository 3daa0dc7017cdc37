package adapters

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
)

const (
	maxAsked = 32 // engines that are asked at once
	maxCalls = 16 // loads and unloads at once, over all engines
	// maxSilent is how many times in a row an engine may fail to tell what it has
	// loaded before plans are made without it.
	maxSilent = 3
)

// keeper is what Run owns: only its goroutine reads and writes the fields. The
// others hand it functions through events.
type keeper struct {
	*Manager
	children sync.WaitGroup
	events   chan func(context.Context)
	asking   chan struct{} // holds one for each engine that is asked

	now      Config               // of this step
	managed  map[string][]Adapter // by model
	names    map[string][]string  // of managed
	sites    map[fleet.WorkerID]*site
	told     map[fleet.WorkerID]map[string]bool // what the core was told of and not asked to forget
	fixed    []lora.Worker                      // ready workers that are not managed
	open     bool                               // whether the plan of this step is still to be made
	patience *time.Timer
	actions  []lora.Action // of the last plan
	calls    int           // loads and unloads under way
}

// site is a worker that is managed, or was and still has what the core was told of.
type site struct {
	record fleet.Record
	listed map[string]bool // what the engine has loaded; nil until it told
	silent int             // failures to answer in a row
	asked  bool            // whether a question is under way
	calls  uint64          // that ended: an answer from before one is not believed
	busy   bool            // whether a load or an unload is under way
	cells  map[string]*cell
}

// cell is a managed adapter on a managed worker.
type cell struct {
	phase    phase
	stop     context.CancelFunc // ends the wait for its last use; nil outside of draining
	failures int
	load     bool // whether what failed was a load
	retryAt  time.Time
	reason   string
}

type phase uint8

const (
	resting phase = iota
	loading
	draining // waits until nobody uses it
	drained  // nobody does; waits for its turn
	unloading
)

func newKeeper(m *Manager) *keeper {
	timer := time.NewTimer(m.pace.patience)
	timer.Stop()
	return &keeper{
		Manager: m, patience: timer, events: make(chan func(context.Context)),
		asking: make(chan struct{}, maxAsked), sites: map[fleet.WorkerID]*site{}, told: map[fleet.WorkerID]map[string]bool{},
	}
}

// report hands a function to Run's goroutine, unless that has ended.
func (k *keeper) report(ctx context.Context, f func(context.Context)) {
	select {
	case k.events <- f:
	case <-ctx.Done():
	}
}

// begin starts a step: it takes over the configuration and the workers and asks
// every engine what it has. The plan follows when all have answered or patience
// ends.
func (k *keeper) begin(ctx context.Context) {
	k.now = *k.cfg.Load()
	k.managed, k.names = map[string][]Adapter{}, map[string][]string{}
	for _, a := range k.now.Manage {
		k.managed[a.Model] = append(k.managed[a.Model], a)
		k.names[a.Model] = append(k.names[a.Model], a.Name)
	}
	k.follow()
	for _, id := range slices.Sorted(maps.Keys(k.sites)) {
		if s := k.sites[id]; !s.asked {
			k.ask(ctx, s)
		}
	}
	switch {
	case len(k.sites) == 0:
		k.plan(ctx)
	case !k.open: // else patience runs already
		k.open = true
		k.patience.Reset(k.pace.patience)
	}
}

// follow makes the sites those ready workers that are managed, or that were and of
// which the core still believes something that no record says.
func (k *keeper) follow() {
	k.fixed = k.fixed[:0]
	ready, known := map[fleet.WorkerID]bool{}, map[fleet.WorkerID]bool{}
	for _, v := range k.workers.Workers() {
		known[v.ID] = true
		if v.Lifecycle != core.Ready {
			continue
		}
		if !loads(v.Engine) {
			k.takeBack(v.ID)
		}
		if len(k.names[v.Model]) == 0 && len(k.told[v.ID]) == 0 || !loads(v.Engine) {
			w := lora.Worker{ID: v.ID}
			for _, a := range v.Adapters {
				w.Loaded = append(w.Loaded, a.Name)
			}
			k.fixed = append(k.fixed, w)
			continue
		}
		ready[v.ID] = true
		s := k.sites[v.ID]
		if s == nil || s.record.URL != v.URL || s.record.Engine != v.Engine || s.record.Partition() != v.Partition() {
			k.leave(v.ID)
			s = &site{cells: map[string]*cell{}}
			k.sites[v.ID] = s
		}
		s.record = v.Record
		k.forget(s)
		if len(k.names[v.Model]) == 0 {
			k.tell(s)
		}
	}
	maps.DeleteFunc(k.told, func(id fleet.WorkerID, _ map[string]bool) bool { return !known[id] })
	for id := range k.sites {
		if !ready[id] {
			k.leave(id)
		}
	}
}

// leave gives up a worker that is no longer ready or is another now. A call that
// is under way ends by itself.
func (k *keeper) leave(id fleet.WorkerID) {
	if s := k.sites[id]; s != nil {
		for _, c := range s.cells {
			c.rest()
		}
		delete(k.sites, id)
		k.show(id, nil)
	}
}

// forget drops the cells of adapters that are managed no longer.
func (k *keeper) forget(s *site) {
	for name, c := range s.cells {
		if !slices.Contains(k.names[s.record.Model], name) && c.phase != loading && c.phase != unloading {
			c.rest()
			delete(s.cells, name)
		}
	}
}

// rest gives up a wait for the last use.
func (c *cell) rest() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
	if c.phase == draining || c.phase == drained {
		c.phase = resting
	}
}

// current tells whether the site is still that of its worker.
func (k *keeper) current(s *site) bool { return k.sites[s.record.ID] == s }

// ask has a goroutine ask the engine what it has loaded.
func (k *keeper) ask(ctx context.Context, s *site) {
	s.asked = true
	record, calls := s.record, s.calls
	k.children.Go(func() {
		select {
		case k.asking <- struct{}{}:
		case <-ctx.Done():
			return
		}
		names, err := k.engines.list(ctx, record)
		<-k.asking
		k.report(ctx, func(ctx context.Context) { k.answered(ctx, s, calls, names, err) })
	})
}

func (k *keeper) answered(ctx context.Context, s *site, calls uint64, names map[string]bool, err error) {
	s.asked = false
	switch {
	case !k.current(s):
	case s.calls != calls:
		k.ask(ctx, s) // a load or an unload ended meanwhile
		return
	case err != nil:
		if s.silent++; s.silent == maxSilent {
			k.log.Warn("engine does not tell its adapters; none is placed there", "worker", s.record.Name, "err", err)
			if len(k.names[s.record.Model]) == 0 {
				k.takeBack(s.record.ID) // not managed: nobody knows better than its record
			}
		}
	default:
		s.silent, s.listed = 0, names
		for name, c := range s.cells {
			if c.failures > 0 && c.load == names[name] {
				c.clear() // it was done all the same
			}
		}
		k.tell(s)
	}
	if k.open && !slices.ContainsFunc(slices.Collect(maps.Values(k.sites)), func(s *site) bool { return s.asked }) {
		k.plan(ctx)
	}
}

// state is what the core is to believe of an adapter.
func (s *site) state(name string) lora.State {
	c := s.cells[name]
	switch {
	case c != nil && c.phase == loading:
		return lora.Loading
	case s.listed[name] && (c == nil || c.phase == resting):
		return lora.Loaded
	}
	return lora.Absent
}

// tell has the core and the list of views know where a worker stands. Nothing is
// told of an engine that never answered.
func (k *keeper) tell(s *site) {
	if s.listed == nil {
		return
	}
	id, ours := s.record.ID, k.names[s.record.Model]
	told := k.told[id]
	if told == nil {
		told = map[string]bool{}
		k.told[id] = told
	}
	for name := range s.listed {
		if !s.lists(name) {
			told[name] = true
		}
	}
	for _, name := range ours {
		told[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(told)) {
		switch state := s.state(name); {
		case slices.Contains(ours, name), s.busyWith(name), state != lora.Absent && !s.lists(name):
			k.core.SetAdapterState(id, name, state)
		default: // the record says it, or it is neither there nor ours
			k.core.ForgetAdapterState(id, name)
			delete(told, name)
		}
	}
	if len(told) == 0 {
		delete(k.told, id)
	}
	k.show(id, k.viewsOf(s))
}

// takeBack has the core go by a worker's record again.
func (k *keeper) takeBack(id fleet.WorkerID) {
	for name := range k.told[id] {
		k.core.ForgetAdapterState(id, name)
	}
	delete(k.told, id)
}

// lists tells whether the worker's record lists an adapter.
func (s *site) lists(name string) bool {
	return slices.ContainsFunc(s.record.Adapters, func(a fleet.Adapter) bool { return a.Name == name })
}

// busyWith tells whether a load or an unload of an adapter is under way.
func (s *site) busyWith(name string) bool {
	c := s.cells[name]
	return c != nil && (c.phase == loading || c.phase == unloading)
}

func (k *keeper) viewsOf(s *site) []View {
	var list []View
	foreign := len(s.listed)
	for _, name := range k.names[s.record.Model] {
		if s.listed[name] {
			foreign--
		}
	}
	for _, name := range k.names[s.record.Model] {
		v := View{Worker: s.record.Name, Adapter: name, State: Absent}
		c := s.cells[name]
		if c == nil {
			c = &cell{}
		}
		v.Reason, v.Failures = c.reason, c.failures
		switch {
		case c.phase == loading:
			v.State = Loading
		case c.phase != resting:
			v.State = Unloading
		case s.listed[name]:
			v.State = Loaded
		case c.failures > 0:
			v.State = Failed
		case foreign >= k.now.Slots:
			v.State, v.Reason = NoSlot, fmt.Sprintf("its slots are filled by what nobody manages: %d of %d", foreign, k.now.Slots)
		}
		list = append(list, v)
	}
	return list
}
