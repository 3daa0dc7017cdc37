package load

import "time"

// Slot names a rank within its tracker.
type Slot int32

// Load is the projected load of one rank.
type Load struct {
	// PrefillTokens are the prompt tokens still to be prefilled: prompt minus
	// cached at booking, until the booking's prefill is complete; less what an
	// estimator says was done meanwhile.
	PrefillTokens int64
	// DecodeBlocks are the KV blocks held, prefixes that bookings share once. A
	// block whose weight was lowered (Decay) counts as that part of one.
	DecodeBlocks float64
	// ActiveRequests counts bookings.
	ActiveRequests int64
}

// Version changes when a booking is made on a rank or its eligibility changes,
// never on a release, a completed prefill, a decay or a report.
type Version uint64

// Tracker holds the loads of a partition's ranks. The zero value is ready and
// estimates nothing.
type Tracker struct {
	estimator Estimator
	slots     []slot
	free      []Slot
	root      node
	live      int
}

type slot struct {
	blocks   micro
	requests int64
	prefill  backlog
	pace     pace
	version  Version
	first    *Booking
}

// NewTracker returns a tracker whose tokens to be prefilled decay as e says. An
// estimator that Validate refuses estimates nothing.
func NewTracker(e Estimator) *Tracker {
	if e.Validate() != nil {
		e = Estimator{}
	}
	return &Tracker{estimator: e}
}

// Len is the number of slots ever used at once; every Slot is below it.
func (t *Tracker) Len() int { return len(t.slots) }

// Live is the number of bookings that count.
func (t *Tracker) Live() int { return t.live }

// Add makes a slot with no load, of which nothing was learned. Its version
// differs from all that the slot had before.
func (t *Tracker) Add() Slot {
	if n := len(t.free); n > 0 {
		s := t.free[n-1]
		t.free = t.free[:n-1]
		t.slots[s].version++
		return s
	}
	t.slots = append(t.slots, slot{version: 1})
	return Slot(len(t.slots) - 1)
}

// Remove drops all bookings of a slot and gives it up for reuse. The owners of
// the dropped bookings are appended to owners.
func (t *Tracker) Remove(s Slot, owners []Owner, now time.Time) []Owner {
	for b := t.slots[s].first; b != nil; b = t.slots[s].first {
		t.Release(b, now)
		owners = append(owners, b.owner)
	}
	t.slots[s] = slot{version: t.slots[s].version + 1}
	t.free = append(t.free, s)
	return owners
}

// Touch raises the version of a slot: its eligibility has changed.
func (t *Tracker) Touch(s Slot) { t.slots[s].version++ }

// Version is the version of a slot.
func (t *Tracker) Version(s Slot) Version { return t.slots[s].version }

// Load is the projected load of a slot at now, and its version. With an
// estimator it takes time linear in the prefills that should be over but are not
// known to be, and none when all should be.
func (t *Tracker) Load(s Slot, now time.Time) (Load, Version) {
	sl := &t.slots[s]
	return Load{
		PrefillTokens:  sl.prefill.left(now),
		DecodeBlocks:   sl.blocks.blocks(),
		ActiveRequests: sl.requests,
	}, sl.version
}

// Book turns b, a zero Booking, into a booking of the slot and raises the
// slot's version.
func (t *Tracker) Book(b *Booking, s Slot, d Demand, owner Owner, now time.Time) {
	sl := &t.slots[s]
	*b = Booking{
		owner: owner, slot: s, live: true,
		prefill: min(max(d.PrefillTokens, 0), maxTokens), own: min(max(d.OwnBlocks, 0), maxOwn), booked: now,
	}
	b.weight = whole.times(b.own)
	b.leaf = t.hold(s, d.Blocks)
	sl.blocks += b.weight
	sl.requests++
	sl.version++
	if b.prefill > 0 {
		b.expected = t.estimator.expected(b.prefill, &sl.pace)
		sl.prefill.push(b, now)
	}
	if b.next = sl.first; b.next != nil {
		b.next.prev = b
	}
	sl.first = b
	t.live++
}

// PrefillComplete takes the booking's prompt out of the tokens to be prefilled;
// a learning tracker takes now for the time of its first token, from which it
// learns where it can tell what was spent on this prompt alone. It reports false
// when that was done before or the booking no longer counts.
func (t *Tracker) PrefillComplete(b *Booking, now time.Time) bool {
	if b.live && b.prefill > 0 && t.estimator.Kind == EstimateLearned {
		t.slots[b.slot].pace.learn(b, now)
	}
	return t.Prefilled(b, now)
}

// Prefilled is PrefillComplete for an answer that came as a whole, of whose first
// token nobody knows the time: nothing is learned from it.
func (t *Tracker) Prefilled(b *Booking, now time.Time) bool {
	if !b.live || b.prefill == 0 {
		return false
	}
	t.slots[b.slot].prefill.remove(b, now)
	b.prefill = 0
	return true
}

// AddBlocks adds n blocks that the booking's output fills, each a whole one until
// the next Decay. It reports false, and adds nothing, when the booking no longer
// counts, n is below 0, or the booking had more than 2^32 blocks of its own.
func (t *Tracker) AddBlocks(b *Booking, n int64) bool {
	if !b.live || n < 0 || n > maxOwn-b.own {
		return false
	}
	b.own += n
	b.weight += whole.times(n)
	t.slots[b.slot].blocks += whole.times(n)
	return true
}

// Release ends the booking. It reports false when it had ended before.
func (t *Tracker) Release(b *Booking, now time.Time) bool {
	if !b.live {
		return false
	}
	b.live = false
	sl := &t.slots[b.slot]
	if b.prefill > 0 {
		sl.prefill.remove(b, now)
	}
	sl.blocks -= b.weight
	sl.requests--
	t.drop(b.slot, b.leaf)
	if b.prev != nil {
		b.prev.next = b.next
	} else {
		sl.first = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	}
	b.leaf, b.prev, b.next = nil, nil, nil
	t.live--
	return true
}
