package catalog

import "github.com/prometheus/client_golang/prometheus"

// Register adds what is counted of the sources, named routerd_source_…, to reg. It
// is to be called once. The label is the source's name, as the configuration has it.
func (s *Sources) Register(reg prometheus.Registerer) error {
	return reg.Register(newSourceMetrics(s))
}

// sourceMetrics reads how the sources stand when it is scraped.
type sourceMetrics struct {
	sources                       *Sources
	up, workers, refusals, losses *prometheus.Desc
}

func newSourceMetrics(s *Sources) *sourceMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("routerd_source_"+name, help, []string{"source"}, nil)
	}
	return &sourceMetrics{
		sources:  s,
		up:       desc("up", "Whether the source of workers is watched; while it is 0, its last list stays."),
		workers:  desc("workers", "Workers in the last list of the source that was taken."),
		refusals: desc("refusals_total", "Lists of the source that were refused whole."),
		losses:   desc("losses_total", "Times that the source was lost."),
	}
}

// Describe implements prometheus.Collector.
func (m *sourceMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.up, m.workers, m.refusals, m.losses} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *sourceMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, st := range m.sources.standings() {
		emit := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, st.status.Name)
		}
		up := 0.0
		if st.status.Up {
			up = 1
		}
		emit(m.up, prometheus.GaugeValue, up)
		emit(m.workers, prometheus.GaugeValue, float64(st.status.Workers))
		emit(m.refusals, prometheus.CounterValue, float64(st.refusals))
		emit(m.losses, prometheus.CounterValue, float64(st.losses))
	}
}
