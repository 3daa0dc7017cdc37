package selection

import (
	"context"
	"errors"
	"io"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// Core is what the service asks the core for.
type Core interface {
	Selections
	Reservations
	Looks
}

// Selections choose and book.
type Selections interface {
	// ResolveModel finds the base model of an adapter that a worker of it lists.
	ResolveModel(name, group string) (key fleet.PartitionKey, adapter string, ok bool)
	Select(ctx context.Context, req *core.Request) (*core.Selection, error)
	Reserve(ctx context.Context, b *core.Booking) (*core.Selection, error)
}

// Reservations hear how a booking goes on, by its selection id.
type Reservations interface {
	PrefillComplete(id string) error
	OutputBlock(id string, n int, fraction *float64) error
	Free(id string, o reserve.Outcome) error
}

// Looks change nothing.
type Looks interface {
	Overlaps(ctx context.Context, q *core.Lookup) (*core.OverlapReport, error)
	PotentialLoads(ctx context.Context, q *core.Lookup) ([]core.PotentialLoad, error)
	Partitions() []core.PartitionView
	Stats() core.Stats
}

// Worker is a worker as the service shows it.
type Worker struct {
	fleet.Record
	Lifecycle core.Lifecycle
	Reasons   []string // why it is not ready; empty when it is
}

// Workers keeps the workers. What is put here is kept over a restart.
type Workers interface {
	// List gives the workers of all sources by id.
	List() []Worker
	// Find gives the worker of any source with that id, if there is one.
	Find(id fleet.WorkerID) (Worker, bool)
	// Put adds or replaces, whole, the worker with the record's id, and tells how it
	// stands after one attempt to make it ready.
	Put(ctx context.Context, rec fleet.Record) (Worker, error)
	// Update changes a worker that was put by API. change gets its record as it is,
	// and nobody else changes it meanwhile; an error of change comes back as it is.
	Update(ctx context.Context, id fleet.WorkerID, change func(*fleet.Record) error) (Worker, error)
	// Delete removes a worker that was put by API and returns what it was.
	Delete(ctx context.Context, id fleet.WorkerID) (Worker, error)
}

// Index hands out what is known of all caches.
type Index interface {
	// Dump writes the index of every partition as one JSON object.
	Dump(w io.Writer) error
}

// Parts are what the service shows and changes. All are required, and all are
// safe for concurrent use.
type Parts struct {
	Core    Core
	Workers Workers
	Index   Index
}

func (p *Parts) validate() error {
	if p.Core == nil || p.Workers == nil || p.Index == nil {
		return errors.New("selection: a part is missing")
	}
	return nil
}
