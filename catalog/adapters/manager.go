package adapters

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
)

// Core is what the manager needs of the selection core. Safe for concurrent use.
type Core interface {
	// PlanAdapters makes one step of every partition's allocation for the workers
	// as they stand, publishes it to the decisions that follow and returns what is
	// to be done in all partitions. The workers may be of any partition; one that
	// the core does not know is left out. An adapter in a worker's Manage or Loaded
	// belongs to the base model of the worker's partition, loaded or not, so that
	// requests for it are known from then on. Nothing of workers is kept.
	PlanAdapters(now time.Time, workers []lora.Worker) []lora.Action
	// SetAdapterState tells where a worker stands with an adapter. It counts more
	// than what the worker's record lists, until the worker leaves or it is taken
	// back; when it has returned with lora.Absent, no booking for the adapter is made
	// there any more. It is told again at each step; a call that changes nothing costs
	// next to nothing. One for a worker that the core does not know is ignored.
	SetAdapterState(worker fleet.WorkerID, adapter string, state lora.State)
	// ForgetAdapterState takes that back: the worker's record counts again.
	ForgetAdapterState(worker fleet.WorkerID, adapter string)
	// AdapterUses counts the bookings on the worker that are for the adapter.
	AdapterUses(worker fleet.WorkerID, adapter string) int
}

// Workers lists the workers of all sources. catalog.Reconciler is one.
type Workers interface {
	Workers() []catalog.View
}

// Manager keeps the adapters of the configuration loaded where the core wants
// them. It is safe for concurrent use.
type Manager struct {
	core    Core
	workers Workers
	engines engines
	log     *slog.Logger
	pace    pace
	cfg     atomic.Pointer[Config]
	changed chan struct{} // size 1: a full one already wakes Run

	mu    sync.Mutex // guards views
	views map[fleet.WorkerID][]View
}

// pace is how fast the manager goes.
type pace struct {
	step      time.Duration // between plans
	patience  time.Duration // for engines that do not answer, before a plan is made without them
	poll      time.Duration // between looks whether an adapter fell out of use
	firstWait time.Duration // after a failure; doubled up to lastWait
	lastWait  time.Duration
}

// New makes a manager; cfg must be valid.
func New(cfg Config, core Core, workers Workers, log *slog.Logger) *Manager {
	m := &Manager{
		core: core, workers: workers, engines: newEngines(), log: log,
		pace: pace{
			step: lora.DefaultStep, patience: time.Second, poll: 100 * time.Millisecond,
			firstWait: time.Second, lastWait: time.Minute,
		},
		changed: make(chan struct{}, 1),
		views:   map[fleet.WorkerID][]View{},
	}
	m.cfg.Store(&cfg)
	return m
}

// Configure puts another configuration, a valid one, in force from the next step,
// which is made at once.
func (m *Manager) Configure(cfg Config) {
	m.cfg.Store(&cfg)
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// The states of a View.
const (
	Absent    = "absent"
	Loading   = "loading"
	Loaded    = "loaded"
	Unloading = "unloading" // waits until nobody uses it, or is being unloaded
	Failed    = "failed"    // not loaded; tried again later
	NoSlot    = "no_slot"   // not loaded: what nobody manages fills the worker's slots
)

// View is where one worker stands with one managed adapter.
type View struct {
	Worker  string `json:"worker"` // its name
	Adapter string `json:"adapter"`
	State   string `json:"state"`
	// Reason is why the last load or unload failed, or why there is no slot; empty
	// otherwise.
	Reason string `json:"reason,omitempty"`
	// Failures counts the failures in a row.
	Failures int `json:"failures,omitempty"`
}

// Adapters lists, by worker and adapter, where the workers that are managed stand
// with the adapters of their model.
func (m *Manager) Adapters() []View {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := []View{}
	for _, list := range m.views {
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b View) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Adapter, b.Adapter))
	})
	return all
}

// show publishes one worker's views; none take it off the list.
func (m *Manager) show(id fleet.WorkerID, list []View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(list) == 0 {
		delete(m.views, id)
		return
	}
	m.views[id] = list
}

// Run makes a step at once, then every 3 s and at each change of configuration,
// until ctx ends; then it cuts off the calls under way, waits for them and returns
// nil. What is loaded stays loaded.
func (m *Manager) Run(ctx context.Context) error {
	k := newKeeper(m)
	defer m.engines.http.CloseIdleConnections()
	defer k.children.Wait()
	tick := time.NewTicker(m.pace.step)
	defer tick.Stop()
	k.begin(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			k.begin(ctx)
		case <-m.changed:
			k.begin(ctx)
		case <-k.patience.C:
			k.plan(ctx)
		case happened := <-k.events:
			happened(ctx)
		}
	}
}
