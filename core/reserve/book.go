// Package reserve owns reservations: the claim of a selection id, the record
// that holds a booking, its one release and its expiry; and the selections that
// wait for a booking of their own.
//
// Invariants: an id is claimed by at most one caller over all partitions; a
// reservation is released exactly once, whoever comes first (its owner, an
// expiry, a withdrawn worker), and only then is its id free again. No call into
// a Booking happens under the Book's lock. The package starts no goroutine and,
// but for PrefillComplete, has no clock.
//
//	claim, ok := book.Claim("req-1")
//	r := claim.Insert(key, booking, terms) // after this nothing can fail
//	r.FirstToken(time.Now())
//	r.Release(reserve.Outcome{Kind: reserve.Completed})
//	book.Expire(time.Now()) // from time to time
package reserve

import (
	"sync"
	"time"

	"github.com/routerd/routerd/fleet"
)

// Key identifies a reservation's booking: two attempts of one selection, or the
// same worker deleted and registered again, never share one.
type Key struct {
	SelectionID string
	Partition   fleet.PartitionKey
	Worker      fleet.Worker
	Generation  uint64 // of the worker's record
	Attempt     uint32
}

// Booking is the load entry that a reservation owns. Its methods are safe for
// concurrent use.
type Booking interface {
	// PrefillComplete takes the prompt out of the tokens to be prefilled; called
	// at most once. It was done at now, the zero time where nobody knows when.
	PrefillComplete(now time.Time)
	// AddBlocks adds n ≥ 0 blocks that output has filled and then, where fraction
	// is not nil, gives all of the booking's output the weight *fraction, from 0
	// to 1. n is above 0 where fraction is nil.
	AddBlocks(n int, fraction *float64)
	// Drop ends the booking; called once.
	Drop(o Outcome)
}

// Terms bound a reservation.
type Terms struct {
	// Expires is from when on Expire ends the reservation, whatever it has done
	// until then; the zero time leaves its end to its owner.
	Expires time.Time
}

// Book knows the selection ids that are in use. The zero value is ready. Safe
// for concurrent use.
type Book struct {
	mu   sync.Mutex // guards all below, and state and place of reservations
	ids  map[string]*Reservation
	live int
	due  schedule
}

// Claim takes a selection id; ok is false when it is in use. A claim must be
// turned into a reservation by Insert or given up by Abandon.
func (b *Book) Claim(id string) (c Claim, ok bool) {
	r := &Reservation{book: b, id: id, place: unscheduled}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, taken := b.ids[id]; taken {
		return Claim{}, false
	}
	if b.ids == nil {
		b.ids = map[string]*Reservation{}
	}
	b.ids[id] = r
	return Claim{r}, true
}

// Find returns the live reservation of a selection id. A claim is not found: to
// the calls of a booking's life it does not exist yet.
func (b *Book) Find(id string) (*Reservation, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.ids[id]
	if r == nil || !r.inserted || r.Released() {
		return nil, false
	}
	return r, true
}

// Len is the number of live reservations; claims are not counted.
func (b *Book) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live
}

// Expire ends, as Expired, every reservation whose Terms.Expires is not after
// now, the oldest first, and returns how many it ended itself. No lock is held
// meanwhile. It looks only at those that are due.
func (b *Book) Expire(now time.Time) int {
	b.mu.Lock()
	due := b.due.takeUntil(now)
	b.mu.Unlock()
	n := 0
	for _, r := range due {
		if r.Release(Outcome{Kind: Expired}) {
			n++
		}
	}
	return n
}

func (b *Book) forget(r *Reservation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ids[r.id] == r {
		delete(b.ids, r.id)
	}
	if r.inserted {
		b.live--
	}
	b.due.remove(r)
}

// Claim is a selection id on its way to a reservation. It is owned by one
// goroutine.
type Claim struct{ r *Reservation }

// Reservation is what Insert will return; until then only its identity counts.
func (c Claim) Reservation() *Reservation { return c.r }

// Insert turns the claim into a reservation that owns the booking. It cannot
// fail. It takes the Book's lock and calls nothing.
func (c Claim) Insert(key Key, booking Booking, terms Terms) *Reservation {
	r, b := c.r, c.r.book
	r.key, r.booking, r.expires = key, booking, terms.Expires
	b.mu.Lock()
	defer b.mu.Unlock()
	r.inserted = true
	b.live++
	if !r.expires.IsZero() {
		b.due.add(r)
	}
	return r
}

// Abandon frees the id. It must not be called after Insert.
func (c Claim) Abandon() { c.r.book.forget(c.r) }
