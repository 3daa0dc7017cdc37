package app

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"
)

// indexMetrics publishes what the partitions' indexes take, as of each scrape.
type indexMetrics struct {
	of             *caches
	bytes, evicted *prometheus.Desc
}

var _ prometheus.Collector = (*indexMetrics)(nil)

func newIndexMetrics(of *caches) *indexMetrics {
	labels := []string{"model", "group"}
	return &indexMetrics{
		of:      of,
		bytes:   prometheus.NewDesc("routerd_index_bytes", "Memory of the index of the engines' caches.", labels, nil),
		evicted: prometheus.NewDesc("routerd_index_evicted_blocks_total", "Blocks that it gave up to stay below index.max_bytes.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *indexMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.bytes
	out <- m.evicted
}

// Collect implements prometheus.Collector.
func (m *indexMetrics) Collect(out chan<- prometheus.Metric) {
	m.of.mu.Lock()
	parts := maps.Clone(m.of.parts)
	m.of.mu.Unlock()
	for key, p := range parts {
		out <- prometheus.MustNewConstMetric(m.bytes, prometheus.GaugeValue, float64(p.bytes()), key.Model, key.Group)
		out <- prometheus.MustNewConstMetric(m.evicted, prometheus.CounterValue, float64(p.events.Evicted()), key.Model, key.Group)
	}
}
