package app

import "github.com/prometheus/client_golang/prometheus"

// reloadMetrics tells how reloads ended.
type reloadMetrics struct {
	ended *prometheus.CounterVec
	last  prometheus.Gauge
}

// Results of a reload.
const (
	reloadOK      = "ok"
	reloadRefused = "refused"
)

func newReloadMetrics(reg prometheus.Registerer) *reloadMetrics {
	m := &reloadMetrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "routerd_config_reloads_total",
			Help: "Reloads of the configuration, by result: ok, also where nothing had changed, or refused.",
		}, []string{"result"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "routerd_config_last_success_timestamp_seconds",
			Help: "When the configuration was last read and put in force, at start or by a reload, in Unix time.",
		}),
	}
	reg.MustRegister(m.ended, m.last)
	for _, result := range []string{reloadOK, reloadRefused} {
		m.ended.WithLabelValues(result)
	}
	m.last.SetToCurrentTime()
	return m
}

func (m *reloadMetrics) count(err error) {
	if err != nil {
		m.ended.WithLabelValues(reloadRefused).Inc()
		return
	}
	m.ended.WithLabelValues(reloadOK).Inc()
	m.last.SetToCurrentTime()
}
