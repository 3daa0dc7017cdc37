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
	// DecisionID finds the decision record.
	DecisionID string
	// Reservation is the booking of a Book; nil for the other kinds. Whoever
	// has the Selection must release it.
	Reservation *reserve.Reservation
}
