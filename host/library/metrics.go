package library

import "github.com/prometheus/client_golang/prometheus"

// metrics are the module directory's.
type metrics struct {
	applied, failed prometheus.Counter
	refused         prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	syncs := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "routerd_plugin_dir_syncs_total", Help: "Sets of files of the module directory, by result: applied or refused.",
	}, []string{"result"})
	m := &metrics{
		applied: syncs.WithLabelValues("applied"), failed: syncs.WithLabelValues("refused"),
		refused: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "routerd_plugin_dir_refused", Help: "1 while the files of the module directory are not in force.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{syncs, m.refused} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
