package host

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the package's. Plugin names come from manifests that an operator
// uploaded, reasons from a closed list.
type metrics struct {
	plugins      *livePlugins
	calls        pluginVec
	faults       pluginVec
	fuel         pluginVec
	logDropped   pluginVec
	growthFailed pluginVec
	idleFaults   pluginVec
	recycled     pluginVec
	audits       pluginVec
	compile      prometheus.Histogram
	rebuilds     prometheus.Counter
	activations  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, r *Runtime) (*metrics, error) {
	plugins := &livePlugins{stages: map[string]int{}}
	m := &metrics{
		plugins: plugins,
		calls: plugins.counter("routerd_plugin_calls_total",
			"Calls of guest modules. Like the other series of a plugin, while a revision that is kept runs it."),
		faults: plugins.counter("routerd_plugin_faults_total",
			"Calls of guest modules that gave no result, by reason; capacity, pool_wait and memory_limit are not the module's doing.", "reason"),
		fuel: plugins.counter("routerd_plugin_fuel_total",
			"Fuel used by guest modules."),
		logDropped: plugins.counter("routerd_plugin_log_dropped_total",
			"Log lines of guest modules over the rate."),
		growthFailed: plugins.counter("routerd_plugin_growth_failures_total",
			"Instances, or larger frames, that could not be made for a running pool; the log says why."),
		idleFaults: plugins.counter("routerd_plugin_idle_faults_total",
			"Guest instances thrown away because rp_idle failed."),
		recycled: plugins.counter("routerd_plugin_recycled_total",
			"Guest instances replaced because their memory grew in call after call up to its limit."),
		audits: plugins.counter("routerd_plugin_audits_total",
			"Calls of guest modules that were to be run again, by result: equal, unequal, fault (of the second run), shed (too many at once), skipped (no memory).", "result"),
		compile: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "routerd_plugin_compile_seconds", Help: "Time to validate and compile a module.",
			Buckets: []float64{0.005, 0.02, 0.1, 0.5, 2, 5, 20, 60},
		}),
		rebuilds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "routerd_plugin_cache_rebuilds_total", Help: "Compiled modules on disk that were damaged and are made again.",
		}),
		activations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "routerd_policy_activations_total", Help: "Policy revisions activated.",
		}),
	}
	gauges := []prometheus.Collector{
		gauge("routerd_plugin_instances", "Guest instances alive.", func() float64 { return float64(r.instances.Load()) }),
		gauge("routerd_plugin_modules", "Compiled modules loaded.", func() float64 { return float64(r.modules.len()) }),
		gauge("routerd_plugin_memory_bytes", "Guest memory of all instances: what guests see, at least what they touched.",
			func() float64 { return float64(r.memory.used.Load()) }),
		gauge("routerd_plugin_memory_mapped_bytes", "Address space reserved for guest memory.",
			func() float64 { return float64(r.memory.mapped.Load()) }),
	}
	if reg == nil { // nobody reads it, but names are refused all the same
		reg = prometheus.NewRegistry()
	}
	r.guests.host = reg
	for _, c := range append(gauges, m.calls, m.faults, m.fuel, m.logDropped, m.growthFailed, m.idleFaults, m.recycled, m.audits, &r.guests, m.compile, m.rebuilds, m.activations) {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

func (m *metrics) compiled(began time.Time) { m.compile.Observe(time.Since(began).Seconds()) }
