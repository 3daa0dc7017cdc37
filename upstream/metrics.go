package upstream

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// counters are what the client counts; gauges are open and idle.
type counters struct {
	requests, reused, resent, dialled, cancelled atomic.Uint64
	failed, timedOut                             [phases]atomic.Uint64
	open, idle                                   atomic.Int64
}

// Stats is a reading of the client's counters since New.
type Stats struct {
	Requests  uint64 // calls of Do
	Reused    uint64 // of them, those that began on a pooled connection
	Resent    uint64 // sent again by Do on a new connection
	Dialled   uint64 // dials begun
	Cancelled uint64 // calls that ended because they were cancelled
	Failed    uint64 // calls that ended with another error, time-outs included
	TimedOut  uint64 // of them, those that ran into a time limit
	Open      int64  // connections open now, idle ones included
	Idle      int64  // connections in the pool now
}

// Stats returns the counters. The values are read one by one.
func (c *Client) Stats() Stats {
	k := &c.counters
	s := Stats{
		Requests: k.requests.Load(), Reused: k.reused.Load(), Resent: k.resent.Load(), Dialled: k.dialled.Load(),
		Cancelled: k.cancelled.Load(), Open: k.open.Load(), Idle: k.idle.Load(),
	}
	for p := range phases {
		s.Failed += k.failed[p].Load()
		s.TimedOut += k.timedOut[p].Load()
	}
	return s
}

// Register adds the client's metrics, named routerd_upstream_…, to reg. It is
// to be called once.
func (c *Client) Register(reg prometheus.Registerer) error {
	return reg.Register(newMetrics(&c.counters, &c.breakers))
}

// metrics reads the counters when it is scraped: a request pays only for them.
type metrics struct {
	counters                                       *counters
	breakers                                       *breakers
	requests, reused, resent, dialled, cancelled   *prometheus.Desc
	failures, timeouts, connections, idleConnected *prometheus.Desc
	refused, changes, broken                       *prometheus.Desc
}

func newMetrics(k *counters, b *breakers) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("routerd_upstream_"+name, help, labels, nil)
	}
	return &metrics{
		counters:      k,
		breakers:      b,
		requests:      desc("requests_total", "Requests handed to the client, each attempt counted."),
		reused:        desc("reused_connections_total", "Requests that began on a pooled connection."),
		resent:        desc("resends_total", "Requests sent again because a pooled connection failed before the first byte of the answer."),
		dialled:       desc("dials_total", "Connections dialled."),
		cancelled:     desc("cancelled_total", "Requests ended by cancellation."),
		failures:      desc("failures_total", "Requests that failed, by the phase in which they did.", "phase"),
		timeouts:      desc("timeouts_total", "Requests that ran into a time limit, by phase.", "phase"),
		connections:   desc("connections", "Open connections to workers."),
		idleConnected: desc("idle_connections", "Open connections to workers that serve no request."),
		refused:       desc("breaker_refused_total", "Requests that were not sent because their worker's breaker was open."),
		changes:       desc("breaker_changes_total", "Changes of breakers, by the state that they led to.", "state"),
		broken:        desc("breakers", "Workers whose breaker is open, or half open: one request at a time.", "state"),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	k := m.counters
	counter(m.requests, k.requests.Load())
	counter(m.reused, k.reused.Load())
	counter(m.resent, k.resent.Load())
	counter(m.dialled, k.dialled.Load())
	counter(m.cancelled, k.cancelled.Load())
	for p := range phases {
		counter(m.failures, k.failed[p].Load(), p.String())
		counter(m.timeouts, k.timedOut[p].Load(), p.String())
	}
	gauge(m.connections, k.open.Load())
	gauge(m.idleConnected, k.idle.Load())
	counter(m.refused, m.breakers.refused.Load())
	now := m.breakers.counts()
	for s := range breakerStates {
		counter(m.changes, m.breakers.changed[s].Load(), s.String())
		if s != breakerClosed { // who is well has none
			gauge(m.broken, now[s], s.String())
		}
	}
}
