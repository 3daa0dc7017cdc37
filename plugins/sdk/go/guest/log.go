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
