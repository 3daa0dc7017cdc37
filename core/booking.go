package core

import (
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/reserve"
)

// booking ties a reservation to its load entry and to the session's lease: the
// one path by which both leave a partition.
type booking struct {
	partition   *Partition
	reservation *reserve.Reservation
	made        time.Time
	session     *affinity.Lease // nil without a session
	demand      load.Demand     // as replicas are told; nothing without any
	adapter     adapterOn       // without a name for the base model
	load        load.Booking    // guarded by the partition's lock
}

var _ reserve.Booking = (*booking)(nil)

// PrefillComplete implements reserve.Booking.
func (b *booking) PrefillComplete(now time.Time) {
	p := b.partition
	p.mu.Lock()
	if now.IsZero() {
		p.tracker.Prefilled(&b.load, time.Now())
	} else {
		p.tracker.PrefillComplete(&b.load, now)
	}
	p.pump()
	p.mu.Unlock()
	if host := p.core.host.Replication; host != nil {
		host.PrefillCompleted(b.reservation.Key())
	}
}

// AddBlocks implements reserve.Booking.
func (b *booking) AddBlocks(n int, fraction *float64) {
	b.partition.mu.Lock()
	defer b.partition.mu.Unlock()
	b.partition.tracker.AddBlocks(&b.load, int64(n))
	if fraction != nil {
		b.partition.tracker.Decay(&b.load, *fraction)
	}
}

// Drop implements reserve.Booking.
func (b *booking) Drop(o reserve.Outcome) {
	p, now := b.partition, time.Now()
	p.mu.Lock()
	p.tracker.Release(&b.load, now)
	p.unuse(b.adapter)
	p.pump()
	p.mu.Unlock()
	b.session.Release(now)
	b.tellFreed()
	p.core.host.Telemetry.Released(&ReleaseEvent{Key: b.reservation.Key(), Outcome: o, Held: now.Sub(b.made)})
}

// Withdraw implements load.Owner: the worker's record is gone, the booking with
// it, and the reservation ends the same way as by its owner.
func (b *booking) Withdraw() {
	b.reservation.Release(reserve.Outcome{Kind: reserve.Withdrawn})
}
