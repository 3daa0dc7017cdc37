package health

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

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
	asker      asker
	counters   counters
	slots      chan struct{} // holds one for each probe that is not slow
	wake       chan struct{} // size 1: Run looks at the agenda
	stale      chan struct{} // size 1: Run lists the workers
	returning  atomic.Pointer[returning]
	suspects   sync.Map // of fleet.WorkerID: those of which a request's success is news

	mu      sync.Mutex // guards all below, and what it holds
	cfg     Config
	workers map[fleet.WorkerID]*watched
	groups  map[fleet.PartitionKey]*group
	agenda  agenda
	listing uint64 // how often the workers were listed
}

// New makes a monitor that asks nobody until Run or Standing is called; cfg must
// be valid.
func New(cfg Config, r Reconciler, log *slog.Logger) *Monitor {
	return newMonitor(cfg, r, &dialler{}, log)
}

func newMonitor(cfg Config, r Reconciler, a asker, log *slog.Logger) *Monitor {
	return &Monitor{
		reconciler: r, log: log, asker: a, cfg: cfg,
		slots: make(chan struct{}, maxAtOnce), wake: make(chan struct{}, 1), stale: make(chan struct{}, 1),
		workers: map[fleet.WorkerID]*watched{}, groups: map[fleet.PartitionKey]*group{},
	}
}

// Config is the configuration in force.
func (m *Monitor) Config() Config {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cfg
}

// Configure puts another configuration, a valid one, in force. Without probes all
// workers count as having answered well.
func (m *Monitor) Configure(cfg Config) {
	var fx effects
	now := time.Now()
	m.mu.Lock()
	if cfg == m.cfg {
		m.mu.Unlock()
		return
	}
	m.cfg = cfg
	for _, w := range m.workers {
		m.govern(w)
		m.review(w, now, &fx)
		due := now.Add(spread(cfg.Interval)) // not all at once
		if w.place >= 0 && w.due.Before(due) {
			due = w.due
		}
		m.schedule(w, now, due)
	}
	m.mu.Unlock()
	m.emit(&fx)
	nudge(m.wake)
}

// Standing implements catalog.Health. It returns with the first probe of a worker
// that is new, else at once. One with NoHealthCheck is ready.
func (m *Monitor) Standing(ctx context.Context, rec fleet.Record) (core.Lifecycle, []string) {
	if !watchable(&rec) {
		return core.Ready, nil
	}
	var fx effects
	now := time.Now()
	m.mu.Lock()
	w := m.workers[rec.ID]
	if w == nil || w.url != rec.URL {
		w = m.add(rec, now, &fx)
		nudge(m.stale) // it may have left before it was asked about
	} else {
		m.update(w, rec, now, &fx)
	}
	var probe func() // the first one of all
	if f := w.flight; !m.cfg.asks() || w.machine.known() {
		probe = func() {}
	} else if f != nil {
		probe = func() {
			select {
			case <-f.done:
			case <-ctx.Done():
			}
		}
	} else {
		probe = m.takeOff(ctx, w, m.slot)
	}
	m.mu.Unlock()
	m.emit(&fx)
	probe()
	m.mu.Lock()
	defer m.mu.Unlock()
	w.asked, w.told = true, w.standing()
	return w.told.lifecycle, w.told.reasons()
}

// Passive hears how a request to a worker went. It costs a look-up as long as all
// goes well. Unknown workers are ignored, and so is NoOutcome.
func (m *Monitor) Passive(id fleet.WorkerID, o fleet.Outcome) {
	if o == fleet.Success {
		if _, ok := m.suspects.Load(id); !ok {
			return
		}
	}
	m.hear(id, func(w *watched, now time.Time) { w.machine.passive(&m.cfg, now, o) })
}

// Breaker hears that the proxy's breaker of a worker has opened, which takes the
// worker out, or that it is open no more, which ends that at once: it lets a call
// through to try, or has closed. The reason is for operators; it should hold no
// address.
func (m *Monitor) Breaker(id fleet.WorkerID, open bool, reason string) {
	m.hear(id, func(w *watched, now time.Time) { w.machine.setBreaker(now, open, reason) })
}

// hear lets a worker's machine hear something and does what follows.
func (m *Monitor) hear(id fleet.WorkerID, tell func(w *watched, now time.Time)) {
	var fx effects
	now := time.Now()
	m.mu.Lock()
	w := m.workers[id]
	if w == nil {
		m.mu.Unlock()
		return
	}
	until := w.machine.until
	tell(w, now)
	m.review(w, now, &fx)
	if !w.machine.until.Equal(until) {
		m.schedule(w, now, w.due)
		nudge(m.wake)
	}
	m.mu.Unlock()
	m.emit(&fx)
}

// review looks at a worker again and notes what that changes, for him and for those
// of his partition. mu must be held, as in all below.
func (m *Monitor) review(w *watched, now time.Time, fx *effects) {
	if suspect := w.machine.suspect(); suspect != w.suspected {
		if w.suspected = suspect; suspect {
			m.suspects.Store(w.id, struct{}{})
		} else {
			m.suspects.Delete(w.id)
		}
	}
	w.look(&m.cfg, now)
	m.refile(w, now, fx)
}

// refile finds out who of a worker's partition is out now.
func (m *Monitor) refile(w *watched, now time.Time, fx *effects) {
	w.group.file(w)
	m.settle(w.group, now, fx)
	m.note(w, now, fx)
}

func (m *Monitor) settle(g *group, now time.Time, fx *effects) {
	g.settle(m.cfg.MaxEjected, func(o *watched) { m.note(o, now, fx) })
}

// note draws the conclusions of a worker's new standing.
func (m *Monitor) note(w *watched, now time.Time, fx *effects) {
	s, out := w.standing(), w.out()
	switch {
	case out && !w.wasOut:
		w.slowly = w.verdict.state == unfit
		m.counters.eject(s.reason)
		m.endReturn(w.id, now)
		fx.lines = append(fx.lines, line{ejected, w.name, s.reason})
	case !out && w.wasOut && w.verdict.state == fit:
		if w.slowly {
			m.beginReturn(w.id, now)
		}
		fx.lines = append(fx.lines, line{back, w.name, ""})
	case w.kept && !w.wasKept:
		fx.lines = append(fx.lines, line{stays, w.name, s.reason})
	}
	w.wasOut, w.wasKept = out, w.kept
	if w.asked && s != w.told {
		w.told = s
		fx.told = append(fx.told, w.id)
	}
}

// effects are what is left to do when mu is free.
type effects struct {
	told  []fleet.WorkerID // whose standing has changed
	lines []line
}

// line is one for the log.
type line struct {
	event  event
	worker string
	reason string
}

type event uint8

const (
	ejected event = iota
	back
	stays
)

// emit logs and tells the catalog. mu must not be held.
func (m *Monitor) emit(fx *effects) {
	for _, l := range fx.lines {
		switch l.event {
		case ejected:
			m.log.Warn("worker ejected", "worker", l.worker, "reason", l.reason)
		case back:
			m.log.Info("worker back in rotation", "worker", l.worker)
		case stays:
			m.log.Warn("worker unfit but kept", "worker", l.worker, "reason", l.reason)
		}
	}
	for _, id := range fx.told {
		m.reconciler.Reconsider(id)
	}
}

// nudge wakes who waits at a channel of size 1; a full one does already.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

var (
	_ catalog.Health   = (*Monitor)(nil)
	_ core.Eligibility = (*Monitor)(nil)
)
