package guest

// Level of a log line.
type Level int32

// The levels.
const (
	Debug Level = 0
	Info  Level = 1
	Warn  Level = 2
	Error Level = 3
)

// Log writes one line of up to 512 bytes to the host's log; more lines than 20
// a second are dropped there. A plugin that calls it must name "log" in the
// imports of its manifest. Never log a prompt or a token.
func Log(level Level, text string) { hostLog(level, text) }

// AddMetric adds to a metric of the manifest, named by its place in metrics.
// Below 0 a counter stays as it is. A plugin that calls it must name
// "metric_add" in the imports of its manifest.
func AddMetric(metric int, v float64) { hostMetricAdd(metric, v) }

// SetMetric sets a gauge of the manifest, named by its place in metrics; a
// counter traps. A plugin that calls it must name "metric_set" in the imports of
// its manifest.
func SetMetric(metric int, v float64) { hostMetricSet(metric, v) }

// Trace puts a value down in the decision's record under a name of the manifest,
// given by its place in traces. A decision keeps eight. A plugin that calls it
// must name "trace" in the imports of its manifest.
func Trace(trace int, v float64) { hostTrace(trace, v) }
