package sharedcache

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// reason is why there was no answer.
type reason string

const (
	reasonAway      reason = "away"        // not asked
	reasonDeadline  reason = "deadline"    // no answer in time
	reasonConnect   reason = "unreachable" // connection refused, broken or ended
	reasonStatus    reason = "status"      // an answer other than 200
	reasonBad       reason = "bad_answer"  // not what the protocol says
	reasonCancelled reason = "cancelled"   // the caller gave up
)

func reasonOf(err error) reason {
	var status statusError
	switch {
	case errors.Is(err, errDeadline):
		return reasonDeadline
	case errors.Is(err, errBad):
		return reasonBad
	case errors.As(err, &status):
		return reasonStatus
	case errors.Is(err, context.Canceled):
		return reasonCancelled
	default:
		return reasonConnect
	}
}

type metrics struct {
	asked, hits prometheus.Counter
	errors      map[reason]prometheus.Counter // read only
	seconds     prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, away func() bool) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "routerd_shared_cache_" + name, Help: help})
	}
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "routerd_shared_cache_errors_total",
		Help: "Prompts that were routed without an answer of the shared cache, by reason; away are those it was not asked for.",
	}, []string{"reason"})
	m := &metrics{
		asked:  counter("asked_blocks_total", "Blocks of prompts that the shared cache answered for."),
		hits:   counter("hit_blocks_total", "Of them, those that it holds."),
		errors: map[reason]prometheus.Counter{},
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "routerd_shared_cache_request_seconds", Help: "Time to an answer of the shared cache.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 15),
		}),
	}
	for _, r := range []reason{reasonAway, reasonDeadline, reasonConnect, reasonStatus, reasonBad, reasonCancelled} {
		m.errors[r] = failed.WithLabelValues(string(r))
	}
	gone := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "routerd_shared_cache_away", Help: "1 while the shared cache is not asked because it failed.",
	}, func() float64 {
		if away() {
			return 1
		}
		return 0
	})
	for _, c := range []prometheus.Collector{m.asked, m.hits, failed, m.seconds, gone} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
