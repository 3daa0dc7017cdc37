package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/indexer/remote"
)

// remoteMetrics publishes what the client of a primary has done, as of each scrape.
type remoteMetrics struct {
	stats func() remote.Stats

	finds, requests, records, waiting, away *prometheus.Desc
}

// servedMetrics publishes what was asked by other routers.
type servedMetrics struct {
	stats func() remote.ServerStats

	finds, records, refused *prometheus.Desc
}

var (
	_ prometheus.Collector = (*remoteMetrics)(nil)
	_ prometheus.Collector = (*servedMetrics)(nil)
)

func newRemoteMetrics(stats func() remote.Stats) *remoteMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("routerd_index_remote_"+name, help, labels, nil)
	}
	return &remoteMetrics{
		stats:    stats,
		finds:    desc("finds_total", "Prompts for which the primary of the index was to be asked, by outcome; all but answered were routed by load. away are those for which it was not asked.", "outcome"),
		requests: desc("requests_total", "Requests for them, each for one prompt or several."),
		records:  desc("records_total", "Decisions that the primary was to be told of, by outcome; dropped are those for which the queue had no room.", "outcome"),
		waiting:  desc("records_waiting", "Decisions that wait to be sent."),
		away:     desc("away", "1 while the primary is not asked because it failed."),
	}
}

func newServedMetrics(stats func() remote.ServerStats) *servedMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("routerd_index_serve_"+name, help, labels, nil)
	}
	return &servedMetrics{
		stats:   stats,
		finds:   desc("finds_total", "Prompts that other routers asked the index for, by outcome.", "outcome"),
		records: desc("records_total", "Decisions that other routers told of, by outcome.", "outcome"),
		refused: desc("refused_total", "Messages of other routers that could not be read."),
	}
}

// Describe implements prometheus.Collector.
func (m *remoteMetrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Describe implements prometheus.Collector.
func (m *servedMetrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements prometheus.Collector.
func (m *remoteMetrics) Collect(out chan<- prometheus.Metric) {
	s := m.stats()
	byOutcome(out, m.finds, s.Finds)
	byOutcome(out, m.records, s.Records)
	away := 0.0
	if s.Away {
		away = 1
	}
	out <- prometheus.MustNewConstMetric(m.requests, prometheus.CounterValue, float64(s.Requests))
	out <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(s.Waiting))
	out <- prometheus.MustNewConstMetric(m.away, prometheus.GaugeValue, away)
}

// Collect implements prometheus.Collector.
func (m *servedMetrics) Collect(out chan<- prometheus.Metric) {
	s := m.stats()
	byOutcome(out, m.finds, s.Finds)
	byOutcome(out, m.records, s.Records)
	out <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(s.Refused))
}

func byOutcome(out chan<- prometheus.Metric, d *prometheus.Desc, counts map[remote.Outcome]uint64) {
	for outcome, n := range counts {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), string(outcome))
	}
}
