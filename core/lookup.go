package core

import (
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// Lookup is a prompt to look at, without a selection.
type Lookup struct {
	Partition fleet.PartitionKey
	Prompt    Prompt
	Adapter   string
}

// OverlapReport is what is cached of a prompt.
type OverlapReport struct {
	Partition fleet.PartitionKey
	BlockSize int
	Blocks    int           // full blocks of the prompt
	Ranks     []RankOverlap // of ready workers, by (worker, rank)
	// Shared are the ranges of block positions that the shared cache holds.
	// SharedAsked tells whether there is one, SharedErr that it did not answer.
	Shared      []kvcache.BlockRange
	SharedAsked bool
	SharedErr   error
}

// RankOverlap is what one rank holds of a prompt.
type RankOverlap struct {
	Worker  fleet.Worker
	Name    string
	Overlap kvcache.Overlap
}

// PotentialLoad is the projected load of a rank with a prompt booked on it.
type PotentialLoad struct {
	Worker         fleet.Worker
	Name           string
	PrefillTokens  int64
	DecodeBlocks   float64
	ActiveRequests int64 // without the prompt's own
}
