package host

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/plugins/abi"
)

// seriesPrefix begins the names of what guests publish:
// routerd_plugin_<name>_<metric>.
const seriesPrefix = "routerd_plugin_"

// guestSeries are the metrics of one loaded module. All its pools feed them.
// Safe for concurrent use.
type guestSeries struct {
	plugin, digest string
	metrics        []abi.Metric
	names          []string // as they are published, parallel to metrics

	mu     sync.Mutex // guards values
	values []float64
}

func newGuestSeries(m *abi.Manifest, digest string) *guestSeries {
	s := &guestSeries{plugin: m.Name, digest: shortDigest(digest), metrics: m.Metrics, values: make([]float64, len(m.Metrics))}
	for _, row := range m.Metrics {
		s.names = append(s.names, seriesName(m.Name, row))
	}
	return s
}

// shortDigest is enough of a digest to tell the versions of a plugin apart.
func shortDigest(digest string) string {
	hex := strings.TrimPrefix(digest, "sha256:")
	return hex[:min(len(hex), 12)]
}

// seriesName is how a metric is published. A counter's name ends in _total, a
// gauge's does not (unpublishable): so two versions of a plugin never publish
// one name with two types.
func seriesName(plugin string, m abi.Metric) string {
	name := seriesPrefix + strings.NewReplacer(".", "_", "-", "_").Replace(plugin) + "_" + m.Name
	if m.Type == abi.MetricCounter && !strings.HasSuffix(name, "_total") {
		name += "_total"
	}
	return name
}

// unpublishable finds a metric whose name cannot be published beside the others.
func unpublishable(m *abi.Manifest) (what, allowed string) {
	seen := map[string]bool{}
	for i, row := range m.Metrics {
		name := seriesName(m.Name, row)
		where := fmt.Sprintf("metrics[%d].name %s", i, row.Name)
		switch {
		case row.Type == abi.MetricGauge && strings.HasSuffix(name, "_total"):
			return where + " of a gauge", "a name that does not end in _total"
		case slices.Contains(hostNames(), name):
			return where + " would be published as " + name + ", which is the host's", "another name of the plugin or of the metric"
		case seen[name]:
			return where + " would be published as " + name + " twice", "names that differ in more than _total"
		}
		seen[name] = true
	}
	return "", ""
}

// change applies what one call held back. Values that are not finite, and
// counters that would fall, are dropped.
func (s *guestSeries) change(id int, held heldValue) {
	if held.v-held.v != 0 || s.metrics[id].Type == abi.MetricCounter && held.v < 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := held.v
	if !held.set {
		v += s.values[id]
	}
	if !math.IsInf(v, 0) {
		s.values[id] = v
	}
}

// guestCollector publishes the series of all loaded modules. It describes none
// of them beforehand, since modules come and go. Safe for concurrent use.
type guestCollector struct {
	mu   sync.Mutex // guards live
	live []*guestSeries
}

func (c *guestCollector) add(s *guestSeries) {
	if len(s.metrics) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = append(c.live, s)
}

func (c *guestCollector) remove(s *guestSeries) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = slices.DeleteFunc(c.live, func(o *guestSeries) bool { return o == s })
}

// Describe sends nothing.
func (c *guestCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the value of each metric of each module. What a name means is
// told in the words of the module that was loaded first, since one name has one
// help text.
func (c *guestCollector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	live := slices.Clone(c.live)
	c.mu.Unlock()
	help := map[string]string{}
	for _, s := range live {
		s.mu.Lock()
		values := slices.Clone(s.values)
		s.mu.Unlock()
		for i, name := range s.names {
			text, ok := help[name]
			if !ok {
				text = "Told by a guest module: " + s.metrics[i].Help
				help[name] = text
			}
			kind := prometheus.GaugeValue
			if s.metrics[i].Type == abi.MetricCounter {
				kind = prometheus.CounterValue
			}
			desc := prometheus.NewDesc(name, text, []string{"plugin", "digest"}, nil)
			out <- prometheus.MustNewConstMetric(desc, kind, values[i], s.plugin, s.digest)
		}
	}
}
