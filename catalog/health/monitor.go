package health

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// Reconciler is what the monitor needs of the catalog. Safe for concurrent use.
type Reconciler interface {
	// Workers lists the workers of all sources.
	Workers() []catalog.View
	// Changed is closed at the next change of any worker.
	Changed() <-chan struct{}
	// Reconsider has the worker's standing asked again. It must not wait for that.
	Reconsider(id fleet.WorkerID)
}

// Monitor watches the workers' health. It is safe for concurrent use.
type Monitor struct {
	reconciler Reconciler
	log        *slog.Logger
}

// New makes a monitor that asks nobody until Run or Standing is called; cfg must
// be valid.
func New(cfg Config, r Reconciler, log *slog.Logger) *Monitor {
	return &Monitor{reconciler: r, log: log}
}

// Configure puts another configuration, a valid one, in force.
func (m *Monitor) Configure(cfg Config) {}

// Run probes the workers until ctx ends, waits for what is under way and returns
// nil.
func (m *Monitor) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Standing implements catalog.Health. It returns with the first probe of a worker
// that is new, else at once.
func (m *Monitor) Standing(ctx context.Context, rec fleet.Record) (core.Lifecycle, []string) {
	return core.Ready, nil
}

// Narrow implements core.Eligibility: it takes workers that have just returned from
// some of the requests, more and more seldom until Config.SlowStart is over. Requests
// with a pin, an affinity target or a session are left alone, and so are those that
// would have nobody left. It costs one atomic load while nobody returns.
func (m *Monitor) Narrow(req *core.Request, workers []fleet.Worker, keep []bool) {}

// Passive hears how a request to a worker went. It costs a look-up as long as all
// goes well. Unknown workers are ignored.
func (m *Monitor) Passive(id fleet.WorkerID, o Outcome) {}

// Breaker hears that the proxy's breaker of a worker has opened, which takes the
// worker out, or that it has closed, which ends that at once. Since a breaker from
// which requests are kept away never closes, an ejection of this kind ends by time
// too, as one by failed requests does.
func (m *Monitor) Breaker(id fleet.WorkerID, open bool, reason string) {}

// Register adds the monitor's metrics, named routerd_health_…, to reg. It is to be
// called once.
func (m *Monitor) Register(reg prometheus.Registerer) error { return nil }

var (
	_ catalog.Health   = (*Monitor)(nil)
	_ core.Eligibility = (*Monitor)(nil)
)
