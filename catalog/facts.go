package catalog

import (
	"context"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// Facts are what an engine tells of itself. Zero values are what it does not tell.
type Facts struct {
	// Engine is one of fleet.Engines, Version as the engine writes it.
	Engine, Version string
	// Models are the base models by the names that requests use, the first one
	// first; Adapters are loaded on top of it.
	Models   []string
	Adapters []fleet.Adapter
	// More tells that it serves more than Models and Adapters name.
	More bool
	// BlockSize is in tokens, TotalKVBlocks of one rank.
	BlockSize, TotalKVBlocks, MaxBatchedTokens, DPSize int
	// KVEvents and Replay map a rank to a ZMQ endpoint that can be connected to.
	KVEvents, Replay map[int]string
	// LoadReports maps a rank to the ZMQ endpoint of its load socket (SGLang).
	LoadReports map[int]string
	// Untold says for each field that could not be found, by its name in a record,
	// why; for an operator.
	Untold []string
}

// Engines finds out what a worker's engine is.
type Engines interface {
	// Configured is the block size that the operator gave for the model; 0 for none.
	Configured(model string) int
	// Ask asks the engine of a record for what it tells of itself. What the record
	// says already is a hint where to look; it is not repeated in the facts. The
	// error says that nobody answered there. It returns within a few seconds.
	Ask(ctx context.Context, rec fleet.Record) (Facts, error)
}

// Health tells whether workers are fit to serve.
type Health interface {
	// Standing tells where a worker stands that has all it needs: Ready, Incomplete
	// while it has never answered, or Ejected; with the reasons where it is not
	// Ready. A worker that is new to it is asked at once, until ctx ends. It is
	// called again when the record changes or Reconciler.Reconsider was told to.
	Standing(ctx context.Context, rec fleet.Record) (core.Lifecycle, []string)
}
