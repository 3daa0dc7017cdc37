package selection

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core/reserve"
)

// metrics count the calls.
type metrics struct {
	requests    *prometheus.CounterVec
	undelivered prometheus.Counter
	routes      map[*route]routeMetrics
}

// routeMetrics are the handles of one route.
type routeMetrics struct {
	name     string
	duration prometheus.Observer
	good     map[int]prometheus.Counter // by status, of good answers
}

// noRoute stands for paths that are none.
const noRoute = "none"

// newMetrics registers the metrics; the routes must live as long as these.
func newMetrics(reg prometheus.Registerer, routes []route, connections func() float64) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "routerd_selection_service_requests_total", Help: "Calls of the selection service, by route (none where there is no such path) and status; 499 is a caller that has gone.",
		}, []string{"route", "status"}),
		undelivered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "routerd_selection_service_undelivered_total", Help: "Bookings that were released since their caller could not be answered.",
		}),
		routes: map[*route]routeMetrics{},
	}
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "routerd_selection_service_request_seconds", Help: "Time of calls of the selection service, from the whole request to its answer, waiting in the queue included, by route.",
		Buckets: []float64{0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60},
	}, []string{"route"})
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "routerd_selection_service_connections", Help: "Open connections of callers of the selection service.",
	}, connections)
	for _, c := range []prometheus.Collector{m.requests, m.undelivered, duration, open} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	for i := range routes {
		r := &routes[i]
		of := routeMetrics{name: r.method + " " + r.pattern, good: map[int]prometheus.Counter{}}
		of.duration = duration.WithLabelValues(of.name)
		for _, status := range r.status {
			of.good[status] = m.requests.WithLabelValues(of.name, strconv.Itoa(status))
		}
		m.routes[r] = of
	}
	return m, nil
}

// count counts a call; r is nil where there is no such path.
func (m *metrics) count(r *route, status int, took time.Duration) {
	of, ok := m.routes[r]
	if !ok {
		m.requests.WithLabelValues(noRoute, strconv.Itoa(status)).Inc()
		return
	}
	of.duration.Observe(took.Seconds())
	if c, ok := of.good[status]; ok {
		c.Inc()
		return
	}
	m.requests.WithLabelValues(of.name, strconv.Itoa(status)).Inc()
}

// release ends a booking whose caller could not be answered.
func (m *metrics) release(r *reserve.Reservation) {
	if r.Release(reserve.Outcome{Kind: reserve.Cancelled}) {
		m.undelivered.Inc()
	}
}
