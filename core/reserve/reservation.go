package reserve

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/fleet"
)

// Kind is how a reservation ended.
type Kind string

// The ways in which a reservation ends.
const (
	Completed Kind = "completed" // the answer ended as it should
	Failed    Kind = "failed"    // the worker failed
	Cancelled Kind = "cancelled" // the caller has gone
	Expired   Kind = "expired"   // its time was over, or its owner was silent for too long
	Withdrawn Kind = "withdrawn" // the worker's record is gone
)

// Outcome tells how a reservation ended.
type Outcome struct {
	Kind Kind
	// FirstToken is when the first token came; zero when none did.
	FirstToken time.Time
}

// Reservation owns a booking and has exactly one release. Safe for concurrent
// use; every method is harmless after the release.
type Reservation struct {
	book    *Book
	id      string
	key     Key
	booking Booking
	expires time.Time // zero when only its owner ends it

	inserted bool // guarded by the Book's lock
	place    int  // in the Book's schedule, guarded by the Book's lock

	released   atomic.Bool
	prefilled  atomic.Bool
	firstToken atomic.Int64 // Unix nanoseconds; 0 = none yet
}

// Key is the identity of the booking.
func (r *Reservation) Key() Key { return r.key }

// FirstToken tells that the first token came at now, which completes the
// prefill. Further calls do nothing.
func (r *Reservation) FirstToken(now time.Time) {
	if r.firstToken.CompareAndSwap(0, now.UnixNano()) {
		r.completePrefill(now)
	}
}

// PrefillComplete takes the prompt out of the rank's tokens to be prefilled.
// Further calls do nothing.
func (r *Reservation) PrefillComplete() { r.completePrefill(time.Now()) }

// Answered is PrefillComplete for an answer that came as a whole: when its first
// token came is not known.
func (r *Reservation) Answered() { r.completePrefill(time.Time{}) }

func (r *Reservation) completePrefill(now time.Time) {
	if !r.released.Load() && !r.prefilled.Swap(true) {
		r.booking.PrefillComplete(now)
	}
}

// OutputBlocks adds n blocks that the answer has filled to the rank's blocks;
// n below 1 does nothing.
func (r *Reservation) OutputBlocks(n int) {
	if n > 0 && !r.released.Load() {
		r.booking.AddBlocks(n, nil)
	}
}

// OutputBlock adds n blocks that the answer has filled, where n is above 0. A
// fraction, from 0 to 1, then says how much of a block each block of all the
// booking's output still counts; nil leaves that as it is. Any other fraction is
// a *fleet.FieldError, and nothing has changed then.
func (r *Reservation) OutputBlock(n int, fraction *float64) error {
	if fraction == nil {
		r.OutputBlocks(n)
		return nil
	}
	f := *fraction
	if !(f >= 0 && f <= 1) { // so that NaN is refused too
		return &fleet.FieldError{Field: "decay_fraction", Value: strconv.FormatFloat(f, 'g', -1, 64), Allowed: "0 to 1"}
	}
	if !r.released.Load() {
		r.booking.AddBlocks(max(n, 0), &f)
	}
	return nil
}

// Released tells whether the reservation has ended.
func (r *Reservation) Released() bool { return r.released.Load() }

// Release ends the reservation: drops the booking, then frees the selection id.
// It reports whether this call did so; all later ones do nothing.
func (r *Reservation) Release(o Outcome) bool {
	if r.released.Swap(true) {
		return false
	}
	if at := r.firstToken.Load(); at != 0 && o.FirstToken.IsZero() {
		o.FirstToken = time.Unix(0, at)
	}
	r.booking.Drop(o)
	r.book.forget(r)
	return true
}
