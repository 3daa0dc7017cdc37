package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// selectionMetrics publishes what the core tells of its decisions.
type selectionMetrics struct {
	decisions  *prometheus.CounterVec
	faults     *prometheus.CounterVec
	conflicts  prometheus.Counter
	turns      prometheus.Counter
	seconds    *prometheus.HistogramVec
	waited     *prometheus.HistogramVec
	refused    *prometheus.CounterVec
	released   *prometheus.CounterVec
	unrecorded prometheus.Counter
	policies   *policyMetrics
}

var (
	_ core.Telemetry = (*selectionMetrics)(nil)
	_ core.Forgetter = (*selectionMetrics)(nil)
)

func newSelectionMetrics(reg prometheus.Registerer) *selectionMetrics {
	m := &selectionMetrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "routerd_selection_decisions_total",
			Help: "Selections by surface, kind, policy, who chose, and error code: empty for an answer, cancelled where the caller gave up before there was one.",
		}, []string{"surface", "kind", "policy", "by", "code"}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "routerd_selection_policy_faults_total",
			Help: "Faults of policies during selections, by policy, code and reason.",
		}, []string{"policy", "code", "reason"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "routerd_selection_conflicts_total",
			Help: "Decisions made again because another booking came first.",
		}),
		turns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "routerd_selection_turns_total",
			Help: "Decisions that took a turn after two conflicts.",
		}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "routerd_selection_duration_seconds",
			Help: "Time of a selection from start to end, that in the queue included.", Buckets: prometheus.ExponentialBuckets(10e-6, 2.5, 14),
		}, []string{"surface"}),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "routerd_queue_wait_seconds",
			Help: "Time that requests waited for a worker that is not busy, or for their session's first request; of those that did wait, answered or not.", Buckets: prometheus.ExponentialBuckets(1e-3, 2.5, 13),
		}, []string{"model", "group", "class"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "routerd_queue_refused_total",
			Help: "Requests that were answered 429 instead of a worker's answer, by class of the queue and code (queue_full, queue_timeout, overloaded, pin_overloaded), and those that hung up while they waited (cancelled).",
		}, []string{"model", "group", "class", "code"}),
		released: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "routerd_selection_released_total",
			Help: "Reservations that ended, by outcome.",
		}, []string{"outcome"}),
		unrecorded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "routerd_selection_unrecorded_total",
			Help: "Decisions without a record: at high rates a sample is recorded.",
		}),
		policies: newPolicyMetrics(reg),
	}
	reg.MustRegister(m.decisions, m.faults, m.conflicts, m.turns, m.seconds, m.waited, m.refused, m.released, m.unrecorded)
	return m
}

// Decided counts a selection.
func (m *selectionMetrics) Decided(e *core.DecisionEvent) {
	m.decisions.WithLabelValues(e.Surface, e.Kind.String(), e.Policy, string(e.By), string(e.Code)).Inc()
	m.seconds.WithLabelValues(e.Surface).Observe(e.Elapsed.Seconds())
	if e.Waited > 0 {
		m.waited.WithLabelValues(e.Partition.Model, e.Partition.Group, e.Class).Observe(e.Waited.Seconds())
	}
	if refusedByQueue(e) {
		m.refused.WithLabelValues(e.Partition.Model, e.Partition.Group, e.Class, string(e.Code)).Inc()
	}
	m.conflicts.Add(float64(e.Conflicts))
	if e.Turn {
		m.turns.Inc()
	}
	if e.FaultReason != "" {
		m.faults.WithLabelValues(e.Policy, e.FaultCode, e.FaultReason).Inc()
	}
	answered := e.By != "" || e.Code == core.CodePolicyFailed || e.Code == core.CodeNoCandidates
	if answered && !e.Recorded {
		m.unrecorded.Inc()
	}
	m.policies.decided(e)
}

// refusedByQueue tells whether a request ended because no worker takes it now, or
// while it waited for one.
func refusedByQueue(e *core.DecisionEvent) bool {
	switch e.Code {
	case core.CodeQueueFull, core.CodeQueueTimeout, core.CodeOverloaded, core.CodePinOverloaded:
		return e.Kind != core.Advisory
	case core.CodeCancelled:
		return e.Waited > 0
	}
	return false
}

// forget removes the series of a policy that is no more.
func (m *selectionMetrics) forget(name string) {
	m.decisions.DeletePartialMatch(prometheus.Labels{"policy": name})
	m.faults.DeletePartialMatch(prometheus.Labels{"policy": name})
	m.policies.forget(name)
}

// Forget removes the series of a partition that is no more.
func (m *selectionMetrics) Forget(key fleet.PartitionKey) {
	labels := prometheus.Labels{"model": key.Model, "group": key.Group}
	m.waited.DeletePartialMatch(labels)
	m.refused.DeletePartialMatch(labels)
}

// Released counts a reservation's end.
func (m *selectionMetrics) Released(e *core.ReleaseEvent) {
	m.released.WithLabelValues(string(e.Outcome.Kind)).Inc()
}
