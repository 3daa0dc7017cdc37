package selection

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count the calls.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "routerd_selection_requests_total", Help: "Calls of the selection service, by route (none where there is no such path) and status.",
		}, []string{"route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "routerd_selection_request_seconds", Help: "Time of calls of the selection service, from the whole request to its answer, waiting in the queue included, by route.",
			Buckets: []float64{0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60},
		}, []string{"route"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// count counts a call; r is nil where there is no such path.
func (m *metrics) count(r *route, status int, took time.Duration) {
	name := "none"
	if r != nil {
		name = r.method + " " + r.pattern
		m.duration.WithLabelValues(name).Observe(took.Seconds())
	}
	m.requests.WithLabelValues(name, strconv.Itoa(status)).Inc()
}
