package core

import (
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// Selection is the answer to a Request. The caller owns it.
type Selection struct {
	// ID is the selection id.
	ID        string
	Partition fleet.PartitionKey
	Worker    fleet.Worker
	// Name and Endpoint are the worker's name and base URL.
	Name, Endpoint string
	// Engine is the worker's engine kind.
	Engine string
	// Ranks is the number of data-parallel ranks of the worker's record, from 1.
	Ranks int
	// BlockSize is the partition's, in tokens.
	BlockSize int
	// By tells who chose.
	By policy.By
	// Policy and Revision name the policy that was asked, also where a pin left
	// it nothing to choose.
	Policy   string
	Revision int
	// Overlap is what the worker holds of the prompt.
	Overlap kvcache.Overlap
	// PromptTokens and PromptBlocks are the prompt's length as it was decided
	// on, further prompts of a batch included.
	PromptTokens, PromptBlocks int
	// Detail is what the choice was expected to bring; nil unless Select was asked for
	// it.
	Detail *Detail
	// DecisionID finds the decision record.
	DecisionID string
	// Reservation is the booking of a Book; nil for the other kinds. Whoever
	// has the Selection must release it.
	Reservation *reserve.Reservation
}

// Detail is what a choice was expected to bring when it was made.
type Detail struct {
	// Sequences are the prompt's sequence hashes, by which load counts the blocks of a
	// booking; nil for what books nothing.
	Sequences []kvcache.SequenceHash
	// Ranks is what each rank of the chosen worker holds of the prompt.
	Ranks []RankOverlap
	// UncachedTokens are the prompt tokens that the chosen rank has to prefill, and
	// DecodeBlocks its active blocks with the request on it.
	UncachedTokens int
	DecodeBlocks   float64
	// PrefillTokens are the rank's tokens to be prefilled without the request.
	PrefillTokens int64
	// MaxBatchedTokens and TotalKVBlocks are of the worker's record; 0 when unknown.
	MaxBatchedTokens, TotalKVBlocks int
	// PrefillBusy and DecodeBusy tell whether the rank is busy for the request's
	// class by its prefill and by its active requests; nil where the class has no
	// such bound.
	PrefillBusy, DecodeBusy *bool
}
