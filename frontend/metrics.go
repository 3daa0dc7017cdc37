package frontend

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the frontend's counters. Label values are bounded: routes, status
// codes, models that were registered, names of workers.
type metrics struct {
	requests  *prometheus.CounterVec
	inFlight  *prometheus.GaugeVec
	first     *prometheus.HistogramVec
	duration  *prometheus.HistogramVec
	tokens    *prometheus.CounterVec
	cancelled prometheus.Counter
	expired   prometheus.Counter
	retries   prometheus.Counter
	failures  *prometheus.CounterVec

	models *series[*modelMetrics]
	failed *series[prometheus.Counter] // by worker
}

// modelMetrics are the handles of one model.
type modelMetrics struct {
	running         atomic.Int64 // requests in flight
	inFlight        prometheus.Gauge
	first, duration prometheus.Observer
	inputs, outputs prometheus.Counter
}

// newMetrics registers them. models and workers name those that are there.
func newMetrics(reg prometheus.Registerer, models, workers func() map[string]struct{}) (*metrics, error) {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "routerd_frontend_" + name, Help: help}
	}
	seconds := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "routerd_frontend_" + name, Help: help,
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"model"})
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(opts("requests_total", "Requests by route and status code; 499 is a client that has gone."), []string{"route", "code"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "routerd_frontend_in_flight", Help: "Completion requests under way, by base model.",
		}, []string{"model"}),
		first:     seconds("first_token_seconds", "Time from the request to the first event of a streamed answer."),
		duration:  seconds("request_seconds", "Time from the request to the end of the answer."),
		tokens:    prometheus.NewCounterVec(opts("tokens_total", "Tokens by the workers' own count."), []string{"model", "kind"}),
		cancelled: prometheus.NewCounter(opts("client_cancelled_total", "Requests whose client went before the answer was complete.")),
		expired:   prometheus.NewCounter(opts("leases_expired_total", "Bookings that were freed because their request relayed nothing for too long.")),
		retries:   prometheus.NewCounter(opts("retries_total", "Further attempts on another worker.")),
		failures:  prometheus.NewCounterVec(opts("worker_failures_total", "Attempts that failed at the worker, before or within the answer."), []string{"worker"}),
	}
	m.models = newSeries(models, m.openModel, func(h *modelMetrics) bool { return h.running.Load() > 0 }, m.removeModel)
	m.failed = newSeries(workers, func(name string) prometheus.Counter { return m.failures.WithLabelValues(name) },
		func(prometheus.Counter) bool { return false }, func(name string) { m.failures.DeleteLabelValues(name) })
	for _, c := range []prometheus.Collector{
		m.requests, m.cancelled, m.expired, m.retries,
		sweptBefore{m.models.sweep, []prometheus.Collector{m.inFlight, m.first, m.duration, m.tokens}},
		sweptBefore{m.failed.sweep, []prometheus.Collector{m.failures}},
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) openModel(model string) *modelMetrics {
	return &modelMetrics{
		inFlight: m.inFlight.WithLabelValues(model), first: m.first.WithLabelValues(model), duration: m.duration.WithLabelValues(model),
		inputs: m.tokens.WithLabelValues(model, "prompt"), outputs: m.tokens.WithLabelValues(model, "completion"),
	}
}

func (m *metrics) removeModel(model string) {
	m.inFlight.DeleteLabelValues(model)
	m.first.DeleteLabelValues(model)
	m.duration.DeleteLabelValues(model)
	m.tokens.DeletePartialMatch(prometheus.Labels{"model": model})
}

// begin counts a request in flight; its model's series stay until its end.
func (m *metrics) begin(model string) (of *modelMetrics) {
	m.models.use(model, func(h *modelMetrics) {
		h.running.Add(1)
		of = h
	})
	of.inFlight.Inc()
	return of
}

// end counts an exchange that is over.
func (m *metrics) end(x *exchange, route string, status int, now time.Time) {
	m.requests.WithLabelValues(route, codeLabel(status)).Inc()
	if !x.counted {
		return
	}
	h := x.series
	defer h.running.Add(-1)
	h.inFlight.Dec()
	h.duration.Observe(now.Sub(x.started).Seconds())
	if x.meter.events && !x.firstAt.IsZero() {
		h.first.Observe(x.firstAt.Sub(x.started).Seconds())
	}
	if n := x.meter.inputs; n > 0 {
		h.inputs.Add(float64(n))
	}
	if n := x.meter.outputs; n > 0 {
		h.outputs.Add(float64(n))
	}
}

// refused counts a request that could not be read.
func (m *metrics) refused(status int) { m.requests.WithLabelValues("other", codeLabel(status)).Inc() }

// codeLabel bounds what a worker may put into a label.
func codeLabel(status int) string {
	switch {
	case status == 200:
		return "200"
	case status < 200 || status > 599:
		return "other"
	}
	return strconv.Itoa(status)
}

// workerFailed counts a failure.
func (m *metrics) workerFailed(name string) { m.failed.use(name, prometheus.Counter.Inc) }
