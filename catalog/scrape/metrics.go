package scrape

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// result is how asking an engine ended.
type result uint8

const (
	answered result = iota
	unreachable
	timedOut
	badStatus
	tooLarge
	unreadable
	noLoad // an answer that says nothing of load
	results
)

// String is the result in metrics and logs.
func (r result) String() string {
	return [results]string{"ok", "unreachable", "timeout", "status", "too_large", "unreadable", "no_load"}[r]
}

// counters are what the scraper counts.
type counters struct {
	asked   [results]atomic.Uint64
	models  [results]atomic.Uint64
	bytes   atomic.Uint64
	refused atomic.Uint64
	strange atomic.Uint64
	pushed  atomic.Uint64
}

// Register adds the scraper's metrics, named routerd_scrape_…, to reg. It is to be
// called once.
func (s *Scraper) Register(reg prometheus.Registerer) error {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("routerd_scrape_"+name, help, labels, nil)
	}
	return reg.Register(&collector{
		scraper: s,
		asked:   desc("asked_total", "Engines asked for their metrics, by result.", "result"),
		models:  desc("models_asked_total", "Engines asked for their adapters, by result.", "result"),
		bytes:   desc("read_bytes_total", "Bytes read of engines' answers."),
		refused: desc("refused_values_total", "Values that are no number, negative or absurd, taken as unknown."),
		strange: desc("foreign_samples_total", "Samples of ranks that a worker has not, or of none where it has several."),
		pushed:  desc("pushed_total", "Reports that came over engines' load sockets."),
		ranks:   desc("ranks", "Ranks of the workers that are asked, by what is known of their load.", "report"),
		age:     desc("oldest_report_seconds", "Age of the oldest of the ranks' newest reports; 0 without any."),
	})
}

// collector reads everything when it is scraped itself.
type collector struct {
	scraper                                                    *Scraper
	asked, models, bytes, refused, strange, pushed, ranks, age *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v *atomic.Uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v.Load()), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	k := &c.scraper.counters
	for r := range results {
		counter(c.asked, &k.asked[r], r.String())
		counter(c.models, &k.models[r], r.String())
	}
	counter(c.bytes, &k.bytes)
	counter(c.refused, &k.refused)
	counter(c.strange, &k.strange)
	counter(c.pushed, &k.pushed)
	fresh, stale, none, oldest := c.scraper.ages(time.Now())
	gauge(c.ranks, float64(fresh), "fresh")
	gauge(c.ranks, float64(stale), "stale")
	gauge(c.ranks, float64(none), "none")
	gauge(c.age, oldest.Seconds())
}

// ages counts the ranks whose report may be used, is too old, and does not exist.
func (s *Scraper) ages(now time.Time) (fresh, stale, none int, oldest time.Duration) {
	maxAge := s.cfg.Load().MaxAge
	for _, t := range *s.table.Load() {
		for i := range t.cells {
			r := t.cells[i].Load()
			switch {
			case r == nil:
				none++
				continue
			case r.Fresh(now, maxAge):
				fresh++
			default:
				stale++
			}
			oldest = max(oldest, now.Sub(r.At))
		}
	}
	return fresh, stale, none, oldest
}
