package frontend

import (
	"strconv"
	"sync"
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
	failures  *failures

	mu     sync.RWMutex // guards models
	models map[string]*modelMetrics
}

// modelMetrics are the handles of one model.
type modelMetrics struct {
	inFlight        prometheus.Gauge
	first, duration prometheus.Observer
	inputs, outputs prometheus.Counter
}

// newMetrics registers them. known names the workers that are there.
func newMetrics(reg prometheus.Registerer, known func() map[string]struct{}) (*metrics, error) {
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
		failures:  newFailures(opts("worker_failures_total", "Attempts that failed at the worker, before or within the answer."), known),
		models:    map[string]*modelMetrics{},
	}
	for _, c := range []prometheus.Collector{m.requests, m.inFlight, m.first, m.duration, m.tokens, m.cancelled, m.expired, m.retries, m.failures} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// of returns the handles of a registered model.
func (m *metrics) of(model string) *modelMetrics {
	m.mu.RLock()
	h := m.models[model]
	m.mu.RUnlock()
	if h != nil {
		return h
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if h = m.models[model]; h == nil {
		h = &modelMetrics{
			inFlight: m.inFlight.WithLabelValues(model), first: m.first.WithLabelValues(model), duration: m.duration.WithLabelValues(model),
			inputs: m.tokens.WithLabelValues(model, "prompt"), outputs: m.tokens.WithLabelValues(model, "completion"),
		}
		m.models[model] = h
	}
	return h
}

func (m *metrics) begin(model string) { m.of(model).inFlight.Inc() }

// end counts an exchange that is over.
func (m *metrics) end(x *exchange, route string, status int, now time.Time) {
	m.requests.WithLabelValues(route, codeLabel(status)).Inc()
	if !x.counted {
		return
	}
	h := m.of(x.model)
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
