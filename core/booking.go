package core

import (
	"time"

	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/reserve"
)

// booking ties a reservation to its load entry: the one path by which load
// leaves a partition.
type booking struct {
	partition   *Partition
	reservation *reserve.Reservation
	made        time.Time
	load        load.Booking // guarded by the partition's lock
}

var _ reserve.Booking = (*booking)(nil)

// PrefillComplete implements reserve.Booking.
func (b *booking) PrefillComplete(now time.Time) {
	b.partition.mu.Lock()
	defer b.partition.mu.Unlock()
	b.partition.tracker.PrefillComplete(&b.load, now)
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
	b.partition.mu.Lock()
	b.partition.tracker.Release(&b.load, time.Now())
	b.partition.mu.Unlock()
	b.partition.core.host.Telemetry.Released(&ReleaseEvent{
		Key: b.reservation.Key(), Outcome: o, Held: time.Since(b.made),
	})
}

// Withdraw implements load.Owner: the worker's record is gone, the booking with
// it, and the reservation ends the same way as by its owner.
func (b *booking) Withdraw() {
	b.reservation.Release(reserve.Outcome{Kind: reserve.Withdrawn})
}
