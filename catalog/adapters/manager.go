package adapters

import (
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
)

// Core is what the manager needs of the selection core. Safe for concurrent use.
type Core interface {
	// PlanAdapters makes one step of every partition's allocation for the workers
	// as they stand, publishes it to the decisions that follow and returns what is
	// to be done in all partitions. The workers may be of any partition; one that
	// the core does not know is left out. An adapter in a worker's Manage or Loaded
	// belongs to the base model of the worker's partition, loaded or not, so that
	// requests for it are known from then on. Nothing of workers is kept.
	PlanAdapters(now time.Time, workers []lora.Worker) []lora.Action
	// SetAdapterState tells where a worker stands with an adapter. It counts more
	// than what the worker's record lists, until the worker leaves. It is told again
	// at each step; a call that changes nothing costs next to nothing. One for a
	// worker that the core does not know is ignored.
	SetAdapterState(worker fleet.WorkerID, adapter string, state lora.State)
	// AdapterUses counts the bookings on the worker that are for the adapter.
	AdapterUses(worker fleet.WorkerID, adapter string) int
}

// Workers lists the workers of all sources. catalog.Reconciler is one.
type Workers interface {
	Workers() []catalog.View
}
