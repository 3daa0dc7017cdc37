package frontend

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// series are those of names that come and go: a name's are made when it is used, and
// taken out once it is not known any more. Safe for concurrent use.
type series[V any] struct {
	known  func() map[string]struct{} // the names that are there; asked without mu
	open   func(name string) V
	busy   func(V) bool // whether they stay all the same
	remove func(name string)

	mu     sync.RWMutex // guards all below
	all    map[string]*used[V]
	swept  int    // how many were left after the last sweep
	sweeps int    // under way
	round  uint64 // sweeps that have begun
}

// used are the series of a name, with the round of their last use.
type used[V any] struct {
	v    V
	last atomic.Uint64
}

func newSeries[V any](known func() map[string]struct{}, open func(string) V, busy func(V) bool, remove func(string)) *series[V] {
	return &series[V]{known: known, open: open, busy: busy, remove: remove, all: map[string]*used[V]{}}
}

// use hands out the series of a name; none is taken out meanwhile. While nobody reads the
// metrics, those of names that are no longer known go when new names have come: an eighth
// more than were left the last time, so that a fleet that fails as a whole does not ask
// for each of its workers.
func (s *series[V]) use(name string, f func(V)) {
	if s.useOld(name, f) {
		return
	}
	s.mu.Lock()
	u := s.all[name]
	if u == nil {
		u = &used[V]{v: s.open(name)}
		s.all[name] = u
	}
	u.last.Store(s.round)
	f(u.v)
	if s.sweeps > 0 || len(s.all) <= s.swept+s.swept/8 {
		s.mu.Unlock()
		return
	}
	round, _ := s.begin()
	s.mu.Unlock()
	s.sweepIn(round, name)
}

func (s *series[V]) useOld(name string, f func(V)) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	u := s.all[name]
	if u == nil {
		return false
	}
	u.last.Store(s.round)
	f(u.v)
	return true
}

// sweep takes out the series of names that are not known.
func (s *series[V]) sweep() {
	s.mu.Lock()
	round, any := s.begin()
	s.mu.Unlock()
	if any {
		s.sweepIn(round, "")
	}
}

// begin begins a sweep where there is anything to sweep. mu must be held.
func (s *series[V]) begin() (round uint64, any bool) {
	if len(s.all) == 0 {
		return 0, false
	}
	s.sweeps++
	s.round++
	return s.round, true
}

// sweepIn takes out the series of names that are not known, but for one, and those that
// were used since the sweep began: they may have come after the list was made.
func (s *series[V]) sweepIn(round uint64, but string) {
	now := s.known()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, u := range s.all {
		if _, ok := now[name]; !ok && name != but && u.last.Load() < round && !s.busy(u.v) {
			s.remove(name)
			delete(s.all, name)
		}
	}
	s.swept = len(s.all)
	s.sweeps--
}

// sweptBefore are metrics that are swept before they are read.
type sweptBefore struct {
	sweep func()
	of    []prometheus.Collector
}

var _ prometheus.Collector = sweptBefore{}

// Describe implements prometheus.Collector.
func (s sweptBefore) Describe(out chan<- *prometheus.Desc) {
	for _, c := range s.of {
		c.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (s sweptBefore) Collect(out chan<- prometheus.Metric) {
	s.sweep()
	for _, c := range s.of {
		c.Collect(out)
	}
}
