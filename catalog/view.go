package catalog

import (
	"context"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// View is a worker as the catalog sees it. Its record has what the engine tells in the
// fields that its source leaves unset.
type View struct {
	fleet.Record
	Source    string         `json:"source"`
	Lifecycle core.Lifecycle `json:"lifecycle"`
	// Reasons say why the worker is not ready, or what is wrong although it is.
	Reasons []string `json:"reasons"`
	// Version is the engine's, Untold what it did not tell of the record's fields and
	// why; both empty while nobody has asked it.
	Version string   `json:"version,omitempty"`
	Untold  []string `json:"untold,omitempty"`
	// DrainUntil is when what a draining worker still has is given up; absent where it
	// does not drain.
	DrainUntil *time.Time `json:"drain_until,omitempty"`
	// LoadReports are the endpoints of the engine's load sockets by rank.
	LoadReports map[int]string `json:"-"`
	// Pending is whether no attempt told yet how the record as it is now does;
	// Lifecycle and Reasons are then those of the record before.
	Pending bool `json:"-"`
}

// Core is where ready workers go.
type Core interface {
	// Prepare builds the partition and its policy where they are missing and
	// checks that it has the block size. It may take seconds.
	Prepare(ctx context.Context, key fleet.PartitionKey, blockSize int) error
	// Commit applies one change at once.
	Commit(change core.Change) error
}

// Listening is one KV event subscription: that of one rank of a worker. What
// else its record says may change without a new subscription.
type Listening struct {
	Partition fleet.PartitionKey
	Worker    fleet.Worker
	Engine    string
	Endpoint  string // the publisher
	Replay    string // the replay socket; empty for none
}

// Listeners subscribe to engines' KV events.
type Listeners interface {
	// Listen starts a subscription. record gives the worker's record as it
	// stands at that moment, for the ranks and adapters that events name; it is
	// safe for concurrent use and its result must not be changed.
	Listen(l Listening, record func() *fleet.Record) error
	// Unlisten ends the subscriptions of some ranks of a partition and forgets their
	// blocks; when it returned, no event of them is applied any more.
	Unlisten(key fleet.PartitionKey, ranks ...fleet.Worker)
}
