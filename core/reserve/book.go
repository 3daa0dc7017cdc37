// Package reserve owns reservations: the claim of a selection id, the record
// that holds a booking, and its one release.
//
// Invariants: an id is claimed by at most one caller over all partitions; a
// reservation is released exactly once, whoever comes first (its owner, an
// expiry, a withdrawn worker), and only then is its id free again. No call into
// a Booking happens under the Book's lock. The package starts no goroutine.
//
//	claim, ok := book.Claim("req-1")
//	r := claim.Insert(key, booking) // after this nothing can fail
//	r.FirstToken(time.Now())
//	r.Release(reserve.Outcome{Kind: reserve.Completed})
package reserve

import (
	"sync"

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
	// PrefillComplete takes the prompt out of the tokens to be prefilled.
	PrefillComplete()
	// AddBlocks adds n > 0 blocks that output has filled.
	AddBlocks(n int)
	// Drop ends the booking; called once.
	Drop(o Outcome)
}

// Book knows the selection ids that are in use. The zero value is ready. Safe
// for concurrent use.
type Book struct {
	mu   sync.Mutex // guards all below
	ids  map[string]*Reservation
	live int
}

// Claim takes a selection id; ok is false when it is in use. A claim must be
// turned into a reservation by Insert or given up by Abandon.
func (b *Book) Claim(id string) (c Claim, ok bool) {
	r := &Reservation{book: b, id: id}
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

// Len is the number of live reservations; claims are not counted.
func (b *Book) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live
}

func (b *Book) forget(r *Reservation, reserved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ids[r.id] == r {
		delete(b.ids, r.id)
	}
	if reserved {
		b.live--
	}
}

// Claim is a selection id on its way to a reservation. It is owned by one
// goroutine.
type Claim struct{ r *Reservation }

// Reservation is what Insert will return; until then only its identity counts.
func (c Claim) Reservation() *Reservation { return c.r }

// Insert turns the claim into a reservation that owns the booking. It cannot
// fail. It takes the Book's lock and calls nothing.
func (c Claim) Insert(key Key, booking Booking) *Reservation {
	c.r.key, c.r.booking = key, booking
	c.r.book.mu.Lock()
	defer c.r.book.mu.Unlock()
	c.r.book.live++
	return c.r
}

// Abandon frees the id. It must not be called after Insert.
func (c Claim) Abandon() { c.r.book.forget(c.r, false) }
