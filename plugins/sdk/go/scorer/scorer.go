package scorer

import (
	"unsafe"

	"github.com/routerd/routerd/plugins/sdk/go/frame"
	"github.com/routerd/routerd/plugins/sdk/go/guest"
)

// Plugin is a scorer.
type Plugin struct {
	// Columns and Fields are those of the manifest, in its order. Their places
	// are the arguments of Batch.Column and Batch.Field.
	Columns []string
	Fields  []string

	// Configure, if set, gets the stage's config once, as JSON that the
	// manifest's schema accepts. It may keep the slice but not change it. Most
	// plugins need none: config.* request fields hold single values, after the
	// request's overrides.
	Configure func(config []byte) error

	// Score writes a finite score for every row below Len; NaN means no opinion
	// on that row. It returns nil, ErrAbstain for no opinion on the request, or
	// an error. It is called by one goroutine at a time and starts none.
	Score func(b *Batch) error

	// NoAllocs says that Score allocates nothing. Then a call saves the
	// collector's turn, about a microsecond. scorertest.Check holds it true.
	NoAllocs bool
}

// Batch is all candidates of one request. It is valid during the call.
type Batch = frame.View

// Column is one signal of every candidate.
type Column = frame.Column

// Scores takes the score of every candidate.
type Scores = frame.Scores

// Flags tell how the request stands.
type Flags = frame.Flags

// The flags.
const (
	Advisory      = frame.Advisory
	DequeuedAgain = frame.DequeuedAgain
	Pinned        = frame.Pinned
	SessionBound  = frame.SessionBound
)

// ErrAbstain says that the plugin has no opinion on this request: its term is
// dropped from the sum.
var ErrAbstain = guest.ErrAbstain

// Max is a > b ? a : b.
func Max(a, b float64) float64 { return frame.Max(a, b) }

// Min is a < b ? a : b.
func Min(a, b float64) float64 { return frame.Min(a, b) }

// ID is the number by which columns and fields know a string.
func ID(s string) float64 { return frame.ID(s) }

// Level of a log line.
type Level = guest.Level

// The levels.
const (
	Debug = guest.Debug
	Info  = guest.Info
	Warn  = guest.Warn
	Error = guest.Error
)

// Log writes one line to the host's log; see guest.Log.
func Log(level Level, text string) { guest.Log(level, text) }

// registered is this module's plugin: the export is a plain function, so what
// it calls has to be a package variable.
var registered Plugin

// Register declares the module's plugin. Call it from package initialisation,
// once.
func Register(p Plugin) {
	guest.Register(guest.Module{Columns: p.Columns, Fields: p.Fields, Configure: p.Configure})
	registered = p
}

// score is one call.
func score(p unsafe.Pointer) int32 {
	b, code := guest.Begin(p)
	if code != frame.CodeOK {
		return code
	}
	return guest.End(registered.Score(b), !registered.NoAllocs)
}
