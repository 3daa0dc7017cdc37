package host

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// livePlugins counts, by plugin name, the stages that may decide: not those of
// dry runs and shadows. The series of a plugin go with the last of them. Safe for
// concurrent use.
type livePlugins struct {
	vecs []*prometheus.CounterVec // whose first label is the plugin

	mu     sync.Mutex // guards stages, and what series there are
	stages map[string]int
}

// counter makes the counters of plugins.
func (l *livePlugins) counter(name, help string, labels ...string) pluginVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"plugin"}, labels...))
	l.vecs = append(l.vecs, vec)
	return pluginVec{vec, l}
}

func (l *livePlugins) begin(plugin string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stages[plugin]++
}

func (l *livePlugins) end(plugin string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stages[plugin]--; l.stages[plugin] > 0 {
		return
	}
	delete(l.stages, plugin)
	for _, vec := range l.vecs {
		vec.DeletePartialMatch(prometheus.Labels{"plugin": plugin})
	}
}

// pluginVec is a counter of each plugin, by name.
type pluginVec struct {
	*prometheus.CounterVec
	live *livePlugins
}

// WithLabelValues is a counter whose series begins when it first counts. It
// counts nothing while no stage of the plugin is live.
func (v pluginVec) WithLabelValues(plugin string, more ...string) prometheus.Counter {
	return pluginCounter{uncounted(), v, append([]string{plugin}, more...)}
}

// pluginCounter finds its series each time: for what is rare.
type pluginCounter struct {
	prometheus.Counter // shows nothing
	vec                pluginVec
	labels             []string // the plugin first
}

// Inc adds 1.
func (c pluginCounter) Inc() { c.Add(1) }

// Add adds n, at least 0.
func (c pluginCounter) Add(n float64) {
	c.vec.live.mu.Lock()
	defer c.vec.live.mu.Unlock()
	if c.vec.live.stages[c.labels[0]] > 0 {
		c.vec.CounterVec.WithLabelValues(c.labels...).Add(n)
	}
}

// uncounted is a counter that nobody sees.
func uncounted() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "uncounted"})
}

// stageMetrics are the counters of one stage, resolved once where each call
// counts.
type stageMetrics struct {
	calls, fuel prometheus.Counter
	faults      map[string]prometheus.Counter // of every reason
	close       func()                        // with the stage
}

// stage makes the counters of one stage. Of one that is not live nothing is
// counted.
func (m *metrics) stage(plugin string, live bool) *stageMetrics {
	s := &stageMetrics{calls: uncounted(), fuel: uncounted(), faults: map[string]prometheus.Counter{}, close: func() {}}
	for _, r := range reasons() {
		s.faults[r] = s.calls
	}
	if !live {
		return s
	}
	m.plugins.begin(plugin)
	s.close = sync.OnceFunc(func() { m.plugins.end(plugin) })
	s.calls, s.fuel = m.calls.CounterVec.WithLabelValues(plugin), m.fuel.CounterVec.WithLabelValues(plugin)
	for r := range s.faults {
		s.faults[r] = m.faults.WithLabelValues(plugin, r)
	}
	return s
}
