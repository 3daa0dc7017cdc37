package zmq

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// loadMetrics count the messages of all load sockets together.
type loadMetrics struct {
	messages, dropped prometheus.Counter
	sockets           prometheus.Gauge
}

func newLoadMetrics(reg prometheus.Registerer) (*loadMetrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "routerd_ingress_load_" + name, Help: help})
	}
	m := &loadMetrics{
		messages: counter("messages_total", "Messages read from engines' load sockets."),
		dropped:  counter("dropped_total", "Of them, those that could not be read."),
		sockets:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "routerd_ingress_load_sockets", Help: "Load sockets that are listened to."}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.messages, m.dropped, m.sockets} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}
