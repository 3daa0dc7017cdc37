package health

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// cause is why workers were ejected, for metrics: the words that reasons of it
// begin with.
type cause uint8

const (
	causeTimeout cause = iota
	causeRefused
	causeUnreachable
	causeBroken
	causeStatus
	causeOutlier
	causeBreaker
	causes // how many there are
)

// String is the cause's word.
func (c cause) String() string {
	return [causes]string{
		wordTimeout, wordRefused, wordUnreachable, wordBroken, wordStatus, wordOutlier, wordBreaker,
	}[c]
}

// counters are what the monitor counts.
type counters struct {
	probes    [results]atomic.Uint64
	ejections [causes]atomic.Uint64
}

// eject counts an ejection by its reason.
func (k *counters) eject(reason string) {
	word := wordOf(reason)
	for c := range causes {
		if c.String() == word {
			k.ejections[c].Add(1)
		}
	}
}

// Register adds the monitor's metrics, named routerd_health_…, to reg. It is to be
// called once.
func (m *Monitor) Register(reg prometheus.Registerer) error {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("routerd_health_"+name, help, labels, nil)
	}
	return reg.Register(&metrics{
		monitor:   m,
		probes:    desc("probes_total", "Probes of workers that had a result, by it.", "result"),
		ejections: desc("ejections_total", "Workers taken out of rotation, by the reason.", "reason"),
		ejected:   desc("ejected_workers", "Workers that are out of rotation for their health."),
		kept:      desc("kept_workers", "Workers that are unfit but stay in rotation, by max_ejected."),
		starting:  desc("starting_workers", "Workers that have not answered since they were added."),
		returning: desc("returning_workers", "Workers that get a part of their requests because they have just returned."),
	})
}

// metrics reads the monitor when it is scraped.
type metrics struct {
	monitor                                               *Monitor
	probes, ejections, ejected, kept, starting, returning *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *metrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), label)
	}
	gauge := func(d *prometheus.Desc, v int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	k := &c.monitor.counters
	for r := range results {
		counter(c.probes, k.probes[r].Load(), r.String())
	}
	for e := range causes {
		counter(c.ejections, k.ejections[e].Load(), e.String())
	}
	s := c.monitor.census()
	gauge(c.ejected, s.ejected)
	gauge(c.kept, s.kept)
	gauge(c.starting, s.starting)
	gauge(c.returning, s.returning)
}

// census counts workers by how they stand.
type census struct{ ejected, kept, starting, returning int }

func (m *Monitor) census() (s census) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.workers {
		switch {
		case w.verdict.state == starting:
			s.starting++
		case w.out():
			s.ejected++
		case w.kept:
			s.kept++
		}
	}
	if t := m.returning.Load(); t != nil {
		s.returning = len(t.since)
	}
	return s
}
