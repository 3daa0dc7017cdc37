package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/indexer/disk"
)

// keepMetrics tells how the index is kept on disk.
type keepMetrics struct {
	written, failed           prometheus.Counter
	last, blocks, bytes, took prometheus.Gauge
	restored, unusable        prometheus.Counter
}

func newKeepMetrics(reg prometheus.Registerer) *keepMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "routerd_index_dump_" + name, Help: help})
	}
	dumps := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "routerd_index_dumps_total", Help: "Writings of the index to disk, by result: ok, or failed, which leaves the file before.",
	}, []string{"result"})
	parts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "routerd_index_restores_total", Help: "Parts of the index on disk that a rank took over, by result: ok, or unusable, also of a file that is as a whole.",
	}, []string{"result"})
	m := &keepMetrics{
		written: dumps.WithLabelValues("ok"), failed: dumps.WithLabelValues("failed"),
		restored: parts.WithLabelValues("ok"), unusable: parts.WithLabelValues("unusable"),
		last:   gauge("last_success_timestamp_seconds", "When the index was last written to disk, in Unix time; 0 for not yet."),
		blocks: gauge("blocks", "Blocks in the index that was last written to disk."),
		bytes:  gauge("size_bytes", "Bytes of it."),
		took:   gauge("duration_seconds", "How long that took."),
	}
	reg.MustRegister(dumps, parts, m.last, m.blocks, m.bytes, m.took)
	return m
}

func (m *keepMetrics) wrote(w *disk.Writer, took time.Duration) {
	m.written.Inc()
	m.last.SetToCurrentTime()
	m.blocks.Set(float64(w.Blocks))
	m.bytes.Set(float64(w.Bytes()))
	m.took.Set(took.Seconds())
}
