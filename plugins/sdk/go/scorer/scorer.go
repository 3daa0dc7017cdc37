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
	// collector's turn, about 2 µs and 14,000 fuel. scorertest.Check holds it true.
	NoAllocs bool
}

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

// AddMetric adds to a metric of the manifest; see guest.AddMetric.
func AddMetric(metric int, v float64) { guest.AddMetric(metric, v) }

// SetMetric sets a gauge of the manifest; see guest.SetMetric.
func SetMetric(metric int, v float64) { guest.SetMetric(metric, v) }

// Trace puts a value down in the decision's record; see guest.Trace.
func Trace(trace int, v float64) { guest.Trace(trace, v) }

// module is this module's plugin and the batch of the call at hand: the export
// is a plain function, so what it works on has to be a package variable.
var module struct {
	plugin Plugin
	batch  Batch
}

// Register declares the module's plugin. Call it from package initialisation,
// once.
func Register(p Plugin) {
	guest.Register(guest.Module{Columns: p.Columns, Fields: p.Fields, Configure: p.Configure})
	module.plugin, module.batch = p, Batch{guest.View()}
}

// score is one call. A plugin that allocates nothing and has no error needs
// nothing done after it.
//
//go:wasmexport rp_score
func score(p unsafe.Pointer) int32 {
	if code := guest.Begin(p); code != frame.CodeOK {
		return code
	}
	err := module.plugin.Score(&module.batch)
	if err == nil && module.plugin.NoAllocs {
		return frame.CodeOK
	}
	return guest.End(err, !module.plugin.NoAllocs)
}
