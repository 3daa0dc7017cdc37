package core

import (
	"slices"
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
)

// UnknownWorker is what becomes of another router's binding to a worker that is
// not in the partition.
const UnknownWorker affinity.Outcome = "unknown_worker"

// ApplyBinding takes in a session's binding that another router has made. Safe
// for concurrent use; it waits for nothing.
func (c *SelectionCore) ApplyBinding(key fleet.PartitionKey, e affinity.Event) affinity.Outcome {
	p := c.directory.Load().partitions[key.Normalised()]
	if p == nil {
		return UnknownWorker
	}
	m := p.view.Load().byID[e.Worker.ID]
	if m == nil || !slices.Contains(m.record.Ranks(), e.Worker.Rank) {
		return UnknownWorker
	}
	outcome := p.sessions.Apply(e, m.generation, time.Now())
	if target, ok := p.sessions.Lookup(e.ID, time.Now()); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.recall(e.ID, target)
	}
	return outcome
}

// replicated is the demand of a booking as replicas are told of it, which they
// may keep; nothing without replicas.
func (c *SelectionCore) replicated(d load.Demand) load.Demand {
	if c.host.Replication == nil {
		return load.Demand{}
	}
	d.Blocks = slices.Clone(d.Blocks)
	return d
}

// tellBooked tells replicas of a booking and of the session that it has bound.
func (b *booking) tellBooked() {
	host := b.partition.core.host.Replication
	if host == nil {
		return
	}
	host.Booked(b.reservation.Key(), b.demand)
	if e, ok := b.session.Event(); ok {
		host.Bound(b.partition.key, e)
	}
}

// tellFreed tells replicas that a booking has ended and its session's idle time
// may have begun.
func (b *booking) tellFreed() {
	host := b.partition.core.host.Replication
	if host == nil {
		return
	}
	if e, ok := b.session.Event(); ok {
		host.Bound(b.partition.key, e)
	}
	host.Freed(b.reservation.Key())
}
