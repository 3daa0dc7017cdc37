package host

import (
	"errors"
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

// unpublishable finds a metric whose name cannot be published beside the module's
// others.
func unpublishable(m *abi.Manifest) (what, allowed string) {
	seen := map[string]bool{}
	for i, row := range m.Metrics {
		name := seriesName(m.Name, row)
		where := fmt.Sprintf("metrics[%d].name %s", i, row.Name)
		switch {
		case row.Type == abi.MetricGauge && strings.HasSuffix(name, "_total"):
			return where + " of a gauge", "a name that does not end in _total"
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
// of them beforehand, since modules come and go. What the host has registered, or
// registers later, is never a guest's. Safe for concurrent use.
type guestCollector struct {
	host prometheus.Registerer

	mu   sync.Mutex // guards live
	live []*guestSeries
}

// checkNames refuses a module with a metric that would be published under the
// name of one of the host's.
func (c *guestCollector) checkNames(m *abi.Manifest) error {
	for i, row := range m.Metrics {
		if name := seriesName(m.Name, row); c.taken(name) {
			return refuse(StepManifest, abi.EManifest,
				clip(fmt.Sprintf("metrics[%d].name %s would be published as %s, which is the host's", i, row.Name, name), 200),
				"another name of the plugin or of the metric")
		}
	}
	return nil
}

// taken tells whether the host has registered a metric of that name, or one of
// whose parts that is the name. The registry is asked, so that no list of the
// host's names can fall behind: a collector that describes the name otherwise
// than anybody else, and then something invalid, is refused for the first or for
// the second, and never registered.
func (c *guestCollector) taken(name string) bool {
	names := []string{name}
	for _, part := range []string{"_bucket", "_count", "_sum"} {
		if whole, ok := strings.CutSuffix(name, part); ok {
			names = append(names, whole)
		}
	}
	for _, n := range names {
		if err := c.host.Register(nameProbe(n)); !errors.Is(err, errNameFree) {
			return true
		}
	}
	return false
}

// errNameFree is why a nameProbe is refused where nobody has its name.
var errNameFree = errors.New("the name is free")

// nameProbe is a collector that every registry refuses.
type nameProbe string

// Describe sends the name with words that nobody else has, and something invalid.
func (p nameProbe) Describe(out chan<- *prometheus.Desc) {
	out <- prometheus.NewDesc(string(p), "Nothing: whether the name is free.", nil, nil)
	out <- prometheus.NewInvalidDesc(errNameFree)
}

// Collect sends nothing.
func (nameProbe) Collect(chan<- prometheus.Metric) {}

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
			if c.taken(name) {
				continue
			}
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
