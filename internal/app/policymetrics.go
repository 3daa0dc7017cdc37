package app

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
)

// revisionsShown is how many revisions of a policy have series: those that
// decided last. The series of the others are removed.
const revisionsShown = 10

// policyMetrics tells how good the decisions of each revision are. Safe for
// concurrent use.
type policyMetrics struct {
	decisions *prometheus.CounterVec
	faults    *prometheus.CounterVec
	best      *prometheus.CounterVec
	selected  *prometheus.CounterVec
	fuel      *prometheus.CounterVec
	spread    *prometheus.HistogramVec
	seconds   *prometheus.HistogramVec

	shown atomic.Pointer[map[policyRevision]*revisionSeries] // never changed in place
	clock atomic.Int64                                       // counts decisions

	mu sync.Mutex // guards changes of shown, and what series there are
}

type policyRevision struct {
	policy   string
	revision int
}

// revisionSeries are the series of one revision.
type revisionSeries struct {
	labels               prometheus.Labels
	by                   map[policy.By]prometheus.Counter // of all that may choose
	best, selected, fuel prometheus.Counter
	spread, seconds      prometheus.Observer
	last                 atomic.Int64 // when it decided last, by clock
}

func newPolicyMetrics(reg prometheus.Registerer) *policyMetrics {
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"policy", "revision"}, more...))
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"policy", "revision"})
	}
	m := &policyMetrics{
		decisions: counter("routerd_policy_decisions_total",
			"Decisions of each revision of a policy, by who chose. Like the other routerd_policy series, of the 10 revisions of a policy that decided last.", "by"),
		faults: counter("routerd_policy_faults_total", "Faults of each revision, by reason.", "reason"),
		best: counter("routerd_policy_cached_tokens_best_total",
			"Prompt tokens that the best eligible worker need not have prefilled. Advisory and pinned requests count neither here nor for the selected worker and the load spread."),
		selected: counter("routerd_policy_cached_tokens_selected_total",
			"Prompt tokens that the selected worker need not prefill."),
		fuel: counter("routerd_policy_fuel_total", "Fuel that each revision used, decisions that were made again included."),
		spread: histogram("routerd_policy_load_spread",
			"By how many active requests the busiest eligible rank is above the mean of all, before each decision.",
			[]float64{0, 0.5, 1, 2, 4, 8, 16, 32, 64, 128}),
		seconds: histogram("routerd_policy_decision_seconds",
			"Time that each revision took to decide, from the filled table to the pick, decisions that were made again included.",
			prometheus.ExponentialBuckets(1e-6, 2.5, 14)),
	}
	m.shown.Store(&map[policyRevision]*revisionSeries{})
	reg.MustRegister(m.decisions, m.faults, m.best, m.selected, m.fuel, m.spread, m.seconds)
	return m
}

// decided counts a selection that a policy was asked for.
func (m *policyMetrics) decided(e *core.DecisionEvent) {
	if e.Policy == "" {
		return
	}
	key := policyRevision{e.Policy, e.Revision}
	s := m.series(key)
	s.last.Store(m.clock.Add(1))
	s.fuel.Add(float64(e.Fuel))
	if e.Deciding > 0 {
		s.seconds.Observe(e.Deciding.Seconds())
	}
	if e.FaultReason != "" {
		m.fault(key, s, e.FaultReason)
	}
	if by := s.by[e.By]; by != nil {
		by.Inc()
	}
	if e.Kind != core.Advisory && (e.By == policy.ByPolicy || e.By == policy.ByFallback) {
		s.best.Add(float64(e.CachedBest))
		s.selected.Add(float64(e.CachedSelected))
		s.spread.Observe(e.LoadSpread)
	}
}

// fault counts a fault, but not of a revision whose series were removed a moment
// ago: they would come back.
func (m *policyMetrics) fault(key policyRevision, s *revisionSeries, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if (*m.shown.Load())[key] == s {
		m.faults.WithLabelValues(key.policy, strconv.Itoa(key.revision), reason).Inc()
	}
}

// series finds the series of a revision, or makes them, for which those of
// another of the policy may have to go.
func (m *policyMetrics) series(key policyRevision) *revisionSeries {
	if s := (*m.shown.Load())[key]; s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	shown := *m.shown.Load()
	if s := shown[key]; s != nil {
		return s
	}
	next := maps.Clone(shown)
	if old, full := longestIdle(shown, key.policy); full {
		m.remove(shown[old])
		delete(next, old)
	}
	s := m.newSeries(key)
	next[key] = s
	m.shown.Store(&next)
	return s
}

// longestIdle is the revision of a policy that decided the longest ago; full
// tells whether the policy has as many series as it may.
func longestIdle(shown map[policyRevision]*revisionSeries, name string) (oldest policyRevision, full bool) {
	n := 0
	for key, s := range shown {
		if key.policy != name {
			continue
		}
		if n++; n == 1 || s.last.Load() < shown[oldest].last.Load() {
			oldest = key
		}
	}
	return oldest, n >= revisionsShown
}

// forget removes the series of all revisions of a policy.
func (m *policyMetrics) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := maps.Clone(*m.shown.Load())
	for key, s := range next {
		if key.policy == name {
			m.remove(s)
			delete(next, key)
		}
	}
	m.shown.Store(&next)
}

func (m *policyMetrics) newSeries(key policyRevision) *revisionSeries {
	number := strconv.Itoa(key.revision)
	s := &revisionSeries{
		labels: prometheus.Labels{"policy": key.policy, "revision": number}, by: map[policy.By]prometheus.Counter{},
		best: m.best.WithLabelValues(key.policy, number), selected: m.selected.WithLabelValues(key.policy, number),
		fuel:   m.fuel.WithLabelValues(key.policy, number),
		spread: m.spread.WithLabelValues(key.policy, number), seconds: m.seconds.WithLabelValues(key.policy, number),
	}
	for _, by := range []policy.By{policy.ByPolicy, policy.ByFallback, policy.ByPin, policy.BySession} {
		s.by[by] = m.decisions.WithLabelValues(key.policy, number, string(by))
	}
	s.last.Store(m.clock.Add(1)) // the next one must not find it idle
	return s
}

func (m *policyMetrics) remove(s *revisionSeries) {
	for _, vec := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.decisions, m.faults, m.best, m.selected, m.fuel, m.spread, m.seconds} {
		vec.DeletePartialMatch(s.labels)
	}
}
