package host

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core/policy"
)

// rolloutMetrics describes the rollouts that run: there are series for the
// canaries and shadows of now alone, one for each policy at most.
type rolloutMetrics struct {
	source  *PolicySource
	percent *prometheus.Desc
	tripped *prometheus.Desc
	shadow  []shadowMetric
	faults  *prometheus.Desc
}

// shadowMetric is one number of a shadow's report.
type shadowMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*ShadowReport) float64
}

// Metrics is a collector of the rollouts that run, to be registered once.
func (s *PolicySource) Metrics() prometheus.Collector {
	revision := []string{"policy", "revision"}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("routerd_policy_"+name, help, labels, nil)
	}
	number := func(name, help string, kind prometheus.ValueType, value func(*ShadowReport) float64) shadowMetric {
		return shadowMetric{desc("shadow_"+name, help, revision...), kind, value}
	}
	count := func(name, help string, value func(*ShadowReport) uint64) shadowMetric {
		return number(name, help, prometheus.CounterValue, func(r *ShadowReport) float64 { return float64(value(r)) })
	}
	return &rolloutMetrics{
		source:  s,
		percent: desc("canary_percent", "Share of the requests that the running canary decides for, beside those by header.", revision...),
		tripped: desc("tripped", "1 while the policy's active revision is tripped and its fallback decides, else 0.", "policy"),
		faults:  desc("shadow_faults_total", "Faults of the running shadow, by reason.", append(revision, "reason")...),
		shadow: []shadowMetric{
			count("seen_total", "Decisions of the active revision while the shadow runs.", func(r *ShadowReport) uint64 { return r.Seen }),
			count("sampled_total", "Of these, chosen by the sample.", func(r *ShadowReport) uint64 { return r.Sampled }),
			count("shed_total", "Sampled decisions that were left out: there was no time for them.", func(r *ShadowReport) uint64 { return r.Shed }),
			count("decided_total", "Decisions of the shadow.", func(r *ShadowReport) uint64 { return r.Decided }),
			count("agreed_total", "Decisions of the shadow with the active revision's pick.", func(r *ShadowReport) uint64 { return r.Agreed }),
			count("masked_total", "Picks of the shadow that a filter of the active revision had dropped.", func(r *ShadowReport) uint64 { return r.Masked }),
			count("fuel_total", "Fuel used by the shadow.", func(r *ShadowReport) uint64 { return r.Fuel }),
			number("seconds_total", "Time used by the shadow.", prometheus.CounterValue, func(r *ShadowReport) float64 { return r.Time.Seconds() }),
			number("regret_mean", "The active revision's total of its pick less that of the shadow's pick, in cost units, on average.",
				prometheus.GaugeValue, func(r *ShadowReport) float64 { return r.RegretMean }),
			number("regret_max", "The largest such difference.", prometheus.GaugeValue, func(r *ShadowReport) float64 { return r.RegretMax }),
			number("active_load_excess", "load.active_requests of the active revision's picks above the mean of their candidates, on average.",
				prometheus.GaugeValue, func(r *ShadowReport) float64 { return r.LoadActive }),
			number("load_excess", "The same of the shadow's picks.", prometheus.GaugeValue, func(r *ShadowReport) float64 { return r.LoadShadow }),
		},
	}
}

// Describe is of prometheus.Collector.
func (m *rolloutMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.percent, m.tripped, m.faults} {
		out <- d
	}
	for i := range m.shadow {
		out <- m.shadow[i].desc
	}
}

// Collect is of prometheus.Collector.
func (m *rolloutMetrics) Collect(out chan<- prometheus.Metric) {
	for _, p := range m.source.List() {
		if p.Active == 0 {
			continue
		}
		out <- prometheus.MustNewConstMetric(m.tripped, prometheus.GaugeValue, p.trippedNow(), p.Name)
		if c := p.Canary; c != nil {
			out <- prometheus.MustNewConstMetric(m.percent, prometheus.GaugeValue, c.Percent, p.Name, strconv.Itoa(c.Revision))
		}
		if p.Shadow == nil {
			continue
		}
		revision := strconv.Itoa(p.Shadow.Revision)
		for i := range m.shadow {
			out <- prometheus.MustNewConstMetric(m.shadow[i].desc, m.shadow[i].kind, m.shadow[i].value(&p.Shadow.Report), p.Name, revision)
		}
		for reason, n := range p.Shadow.Report.Faults {
			out <- prometheus.MustNewConstMetric(m.faults, prometheus.CounterValue, float64(n), p.Name, revision, reason)
		}
	}
}

// trippedNow is 1 when the active revision is tripped.
func (p *PolicyInfo) trippedNow() float64 {
	for i := range p.Revisions {
		if r := &p.Revisions[i]; r.Number == p.Active && r.State == policy.Tripped {
			return 1
		}
	}
	return 0
}
