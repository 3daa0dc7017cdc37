package frontend

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// failures counts the attempts that failed, by worker: of those that are known while
// the counts are read.
type failures struct {
	counts *prometheus.CounterVec
	known  func() map[string]struct{} // names of the workers that are there; asked without mu

	mu      sync.Mutex        // guards all below
	counted map[string]uint64 // how often each worker with a series failed
	swept   int               // how many there were after the last sweep
	sweeps  int               // under way
}

var _ prometheus.Collector = (*failures)(nil)

func newFailures(opts prometheus.CounterOpts, known func() map[string]struct{}) *failures {
	return &failures{counts: prometheus.NewCounterVec(opts, []string{"worker"}), known: known, counted: map[string]uint64{}}
}

// add counts a failure. While nobody reads the metrics, the series of workers that are
// no longer known go when new names have come: an eighth more than were left the last
// time, so that a fleet that fails as a whole does not ask for each of its workers.
func (f *failures) add(name string) {
	f.mu.Lock()
	f.counts.WithLabelValues(name).Inc()
	f.counted[name]++
	if f.counted[name] > 1 || f.sweeps > 0 || len(f.counted) <= f.swept+f.swept/8 {
		f.mu.Unlock()
		return
	}
	before := f.begin()
	f.mu.Unlock()
	f.sweep(before, name)
}

// begin begins a sweep, of what was counted until now. mu must be held.
func (f *failures) begin() (before map[string]uint64) {
	f.sweeps++
	return maps.Clone(f.counted)
}

// sweep takes out the series of workers that are not known, but for one, and those
// that have failed since it began: they may have come after the list was made.
func (f *failures) sweep(before map[string]uint64, but string) {
	var now map[string]struct{}
	if len(before) > 0 {
		now = f.known()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, n := range before {
		if _, ok := now[name]; !ok && name != but && f.counted[name] == n {
			f.counts.DeleteLabelValues(name)
			delete(f.counted, name)
		}
	}
	f.swept = len(f.counted)
	f.sweeps--
}

// Describe implements prometheus.Collector.
func (f *failures) Describe(out chan<- *prometheus.Desc) { f.counts.Describe(out) }

// Collect implements prometheus.Collector.
func (f *failures) Collect(out chan<- prometheus.Metric) {
	f.mu.Lock()
	before := f.begin()
	f.mu.Unlock()
	f.sweep(before, "")
	f.counts.Collect(out)
}
