package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core"
)

// coreMetrics publishes what the core holds, as of each scrape.
type coreMetrics struct {
	stats func() core.Stats

	reservations, pending, pendingBytes *prometheus.Desc
	queued, queuedTokens                *prometheus.Desc
	sessions, leases, full, expired     *prometheus.Desc
}

var _ prometheus.Collector = (*coreMetrics)(nil)

func newCoreMetrics(stats func() core.Stats) *coreMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("routerd_"+name, help, labels, nil)
	}
	return &coreMetrics{
		stats:        stats,
		reservations: desc("selection_reservations", "Live reservations."),
		pending:      desc("selection_pending", "Selections that wait for a booking of their own."),
		pendingBytes: desc("selection_pending_bytes", "Memory that these hold."),
		queued:       desc("queue_requests", "Requests that wait for a worker, or for their session's first request, by class.", "model", "group", "class"),
		queuedTokens: desc("queue_tokens", "Prompt tokens of these.", "model", "group", "class"),
		sessions:     desc("affinity_sessions", "Sessions, by state: bound to a worker, or initialising (their first request is being decided).", "model", "group", "state"),
		leases:       desc("affinity_leases", "Requests and bookings that keep a session with its worker.", "model", "group"),
		full:         desc("affinity_full_total", "Requests whose session was not bound because the table was full.", "model", "group"),
		expired:      desc("affinity_expired_total", "Sessions that ended because nobody used them.", "model", "group"),
	}
}

// Describe implements prometheus.Collector.
func (m *coreMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.reservations, m.pending, m.pendingBytes, m.queued, m.queuedTokens, m.sessions, m.leases, m.full, m.expired} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *coreMetrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	s := m.stats()
	gauge(m.reservations, float64(s.Reservations))
	gauge(m.pending, float64(s.Pending))
	gauge(m.pendingBytes, float64(s.PendingBytes))
	for _, p := range s.Partitions {
		model, group := p.Key.Model, p.Key.Group
		for _, q := range p.Queue {
			gauge(m.queued, float64(q.Requests), model, group, q.Class)
			gauge(m.queuedTokens, float64(q.Tokens), model, group, q.Class)
		}
		gauge(m.sessions, float64(p.Sessions.Bound), model, group, "bound")
		gauge(m.sessions, float64(p.Sessions.Initialising), model, group, "initialising")
		gauge(m.leases, float64(p.Sessions.Leases), model, group)
		counter(m.full, p.Sessions.Full, model, group)
		counter(m.expired, p.Sessions.Expired, model, group)
	}
}
