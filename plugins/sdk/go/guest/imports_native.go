//go:build !wasip1

package guest

import "sync"

// Line is one line that a plugin logged in a native build.
type Line struct {
	Level Level
	Text  string
}

// Value is one value that a plugin told in a native build.
type Value struct {
	Import string // metric_add, metric_set or trace
	ID     int
	Value  float64
}

// lines stands for the host in a native build, where plugins are unit-tested.
var lines struct {
	mu     sync.Mutex
	got    []Line
	values []Value
}

func hostMetricAdd(id int, v float64) { hostValue("metric_add", id, v) }
func hostMetricSet(id int, v float64) { hostValue("metric_set", id, v) }
func hostTrace(id int, v float64)     { hostValue("trace", id, v) }

func hostValue(name string, id int, v float64) {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	lines.values = append(lines.values, Value{name, id, v})
}

// TakeValues returns the metric changes and traces that were told since the last
// call. Only a native build has it. Safe for concurrent use.
func TakeValues() []Value {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	got := lines.values
	lines.values = nil
	return got
}

func hostLog(level Level, text string) {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	lines.got = append(lines.got, Line{level, text[:min(len(text), 512)]})
}

// TakeLog returns the lines that were logged since the last call. Only a native
// build has it. Safe for concurrent use.
func TakeLog() []Line {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	got := lines.got
	lines.got = nil
	return got
}
