//go:build !wasip1

package guest

import "sync"

// Line is one line that a plugin logged in a native build.
type Line struct {
	Level Level
	Text  string
}

// lines stands for the host in a native build, where plugins are unit-tested.
var lines struct {
	mu  sync.Mutex
	got []Line
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
