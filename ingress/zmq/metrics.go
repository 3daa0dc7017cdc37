package zmq

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/kvcache"
)

// metrics are the counters of all streams together; their labels come from closed lists.
type metrics struct {
	messages prometheus.Counter
	events   [kvcache.Cleared + 1]prometheus.Counter
	dropped  []prometheus.Counter // by kvcache.DropReason
	gaps     prometheus.Counter
	lost     prometheus.Counter
	restarts prometheus.Counter
	replays  []prometheus.Counter // by stream.Result
	streams  []prometheus.Gauge   // by stream.State
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "routerd_ingress_" + name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "routerd_ingress_" + name, Help: help}, []string{label})
	}
	events := vec("events_total", "KV events applied, by kind.", "kind")
	dropped := vec("dropped_total", "Messages, events and blocks not taken over, by reason.", "reason")
	replays := vec("replays_total", "Replays asked of publishers, by result.", "result")
	streams := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "routerd_ingress_streams", Help: "Event streams, by state."}, []string{"state"})
	m := &metrics{
		messages: counter("messages_total", "Messages applied."),
		gaps:     counter("gap_messages_total", "Numbers found missing among live messages."),
		lost:     counter("lost_messages_total", "Missing numbers that could not be had."),
		restarts: counter("restarts_total", "Engines found to have started anew."),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.messages, events, dropped, m.gaps, m.lost, m.restarts, replays, streams} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for k := range m.events {
		m.events[k] = events.WithLabelValues(kvcache.EventKind(k).String())
	}
	for _, r := range kvcache.DropReasons() {
		m.dropped = append(m.dropped, dropped.WithLabelValues(r.String()))
	}
	for _, r := range stream.Results() {
		m.replays = append(m.replays, replays.WithLabelValues(r.String()))
	}
	for _, s := range stream.States() {
		m.streams = append(m.streams, streams.WithLabelValues(s.String()))
	}
	return m, nil
}

// count adds what the stream counted since before.
func (m *metrics) count(before, now stream.Counts) {
	m.messages.Add(float64(now.Applied - before.Applied))
	m.gaps.Add(float64(now.Gaps - before.Gaps))
	m.lost.Add(float64(now.Lost - before.Lost))
	m.restarts.Add(float64(now.Restarts - before.Restarts))
	for i, n := range now.Replays {
		m.replays[i].Add(float64(n - before.Replays[i]))
	}
}

func (m *metrics) drop(before, now *kvcache.DropCounts) {
	for i, n := range now {
		if n > before[i] {
			m.dropped[i].Add(float64(n - before[i]))
		}
	}
}
