package prompt

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	outcomes *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "routerd_prompt_tokenize_total",
		Help: "Prompts by where their tokens came from, or why there were none.",
	}, []string{"outcome"})}
	for _, o := range []Outcome{Cached, Fresh, Slow, Failed, NoWorker, Unsupported, Cancelled} {
		m.outcomes.WithLabelValues(string(o))
	}
	reg.MustRegister(m.outcomes)
	return m
}
