package app

import "github.com/prometheus/client_golang/prometheus"

// reloadMetrics tells how reloads ended.
type reloadMetrics struct {
	ended   *prometheus.CounterVec
	refused prometheus.Gauge
	last    prometheus.Gauge
}

// Results of a reload.
const (
	reloadOK      = "ok"
	reloadRefused = "refused"
)

// Who asks for a reload.
const (
	byAPI    = "api"
	bySignal = "signal"
	byFile   = "file" // a watched file has changed
)

func newReloadMetrics(reg prometheus.Registerer) *reloadMetrics {
	m := &reloadMetrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "routerd_config_reloads_total",
			Help: "Reloads of the configuration, by result: ok, also where nothing had changed, or refused; and by what triggered them: api, signal, or file, a change of a watched file.",
		}, []string{"result", "trigger"}),
		refused: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "routerd_config_refused",
			Help: "1 while the last reload was refused, so that another configuration is in force than the one of the file; else 0.",
		}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "routerd_config_last_success_timestamp_seconds",
			Help: "When the configuration was last read and put in force, at start or by a reload, in Unix time.",
		}),
	}
	reg.MustRegister(m.ended, m.refused, m.last)
	for _, result := range []string{reloadOK, reloadRefused} {
		for _, by := range []string{byAPI, bySignal, byFile} {
			m.ended.WithLabelValues(result, by)
		}
	}
	m.last.SetToCurrentTime()
	return m
}

func (m *reloadMetrics) count(by string, err error) {
	if err != nil {
		m.ended.WithLabelValues(reloadRefused, by).Inc()
		m.refused.Set(1)
		return
	}
	m.ended.WithLabelValues(reloadOK, by).Inc()
	m.refused.Set(0)
	m.last.SetToCurrentTime()
}
