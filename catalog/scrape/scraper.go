package scrape

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
)

var _ core.Load = (*Scraper)(nil)

// Reconciler knows the workers.
type Reconciler interface {
	// Workers lists all workers.
	Workers() []catalog.View
	// Changed is closed at the next change of any worker.
	Changed() <-chan struct{}
}

// Scraper knows what engines report of their load. It is safe for concurrent use.
type Scraper struct {
	workers   Reconciler
	log       *slog.Logger
	cfg       atomic.Pointer[Config]
	changed   chan struct{} // size 1: a full one already wakes Run
	table     atomic.Pointer[table]
	counters  counters
	sockets   Sockets
	endpoints func(catalog.View) map[int]string
	// tellAdapters is called when what Adapters says of a worker has changed.
	tellAdapters func(fleet.WorkerID)
	dial         func(ctx context.Context, address string) (net.Conn, error)
}

// New makes a scraper; cfg must be valid.
func New(cfg Config, workers Reconciler, log *slog.Logger) *Scraper {
	var dialer net.Dialer
	s := &Scraper{
		workers: workers, log: log, changed: make(chan struct{}, 1), sockets: noSockets{},
		endpoints:    func(catalog.View) map[int]string { return nil },
		tellAdapters: func(fleet.WorkerID) {},
		dial: func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		},
	}
	s.cfg.Store(&cfg)
	s.table.Store(&table{})
	return s
}

// OnAdapters has changed called with each worker of which Adapters says something
// else than before, from the goroutine that asks its engine: it must be short. That an
// engine told too long ago is not told. It must be called before Run.
func (s *Scraper) OnAdapters(changed func(fleet.WorkerID)) { s.tellAdapters = changed }

// Config is the configuration in force.
func (s *Scraper) Config() Config { return *s.cfg.Load() }

// Configure puts another configuration, a valid one, in force.
func (s *Scraper) Configure(cfg Config) {
	s.cfg.Store(&cfg)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Report is the newest report of a rank, from the engine's metrics or its load
// socket; ok is false when there is none or it is older than Config.MaxAge. It
// takes no lock and does not allocate.
func (s *Scraper) Report(w fleet.Worker) (load.Report, bool) {
	r := s.table.Load().report(w)
	if r == nil || !r.Fresh(time.Now(), s.cfg.Load().MaxAge) {
		return load.Report{}, false
	}
	return *r, true
}

// Adapters lists, by name, the adapters that the worker's engine has loaded; ok is
// false as long as it did not tell, and when that was too long ago. The names suit
// a record of the worker's model. They are what the engine says, those that package
// adapters manages among them: what that tells the core counts more than a record,
// so that a list which is half a minute old overrules nothing.
func (s *Scraper) Adapters(id fleet.WorkerID) (loaded []fleet.Adapter, ok bool) {
	t := (*s.table.Load())[id]
	if t == nil {
		return nil, false
	}
	return t.adapters.loaded(time.Now())
}
