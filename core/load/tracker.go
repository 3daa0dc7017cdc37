// Package load projects what each (worker, rank) of a partition is doing from
// the bookings made on it: prompt tokens still to be prefilled, KV blocks held
// (shared prefixes once) and active requests.
//
// A Tracker has no lock: its partition's lock guards it and every Booking made
// by it. Slots name ranks; a slot whose rank was removed is reused, and its old
// bookings are dropped before, so that a late release of one changes nothing.
// The package starts no goroutine.
//
//	s := t.Add()
//	t.Book(&b, s, load.Demand{PrefillTokens: 100, Blocks: hashes}, owner)
//	t.PrefillComplete(&b)
//	t.Release(&b)
package load

import "github.com/routerd/routerd/kvcache"

// Slot names a rank within its tracker.
type Slot int32

// Load is the projected load of one rank.
type Load struct {
	// PrefillTokens are the prompt tokens still to be prefilled: prompt minus
	// cached at booking, until the booking's prefill is complete.
	PrefillTokens int64
	// DecodeBlocks are the KV blocks held, prefixes that bookings share once.
	DecodeBlocks int64
	// ActiveRequests counts bookings.
	ActiveRequests int64
}

// Version changes when a booking is made on a rank or its eligibility changes,
// never on a release, a completed prefill or a report.
type Version uint64

// Demand is what one booking puts on a rank.
type Demand struct {
	// PrefillTokens is the part of the prompt that is not cached there.
	PrefillTokens int64
	// Blocks are the prompt's sequence hashes. The tracker copies what it keeps.
	Blocks []kvcache.SequenceHash
	// OwnBlocks counts blocks that are shared with nobody, such as those of a
	// prompt whose tokens are not known.
	OwnBlocks int64
}

// Owner is told when a booking is dropped with its slot.
type Owner interface {
	// Withdraw ends what depends on the booking. It is called by whoever called
	// Remove, after giving up the lock.
	Withdraw()
}

// Booking is the load entry of one attempt on one rank. The zero value is no
// booking; Book makes it one.
type Booking struct {
	owner      Owner
	slot       Slot
	live       bool
	prefill    int64
	own        int64
	leaf       *node
	prev, next *Booking // bookings of the same slot
}

// Live tells whether the booking still counts.
func (b *Booking) Live() bool { return b.live }

// Owner is the owner that was given to Book.
func (b *Booking) Owner() Owner { return b.owner }

// Tracker holds the loads of a partition's ranks.
type Tracker struct {
	slots []slot
	free  []Slot
	root  node
	live  int
}

type slot struct {
	load    Load
	version Version
	first   *Booking
}

// Len is the number of slots ever used at once; every Slot is below it.
func (t *Tracker) Len() int { return len(t.slots) }

// Live is the number of bookings that count.
func (t *Tracker) Live() int { return t.live }

// Add makes a slot with no load. Its version differs from all that the slot had
// before.
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
func (t *Tracker) Remove(s Slot, owners []Owner) []Owner {
	for b := t.slots[s].first; b != nil; b = t.slots[s].first {
		t.Release(b)
		owners = append(owners, b.owner)
	}
	t.slots[s].version++
	t.free = append(t.free, s)
	return owners
}

// Touch raises the version of a slot: its eligibility has changed.
func (t *Tracker) Touch(s Slot) { t.slots[s].version++ }

// Load is the projected load of a slot and its version.
func (t *Tracker) Load(s Slot) (Load, Version) {
	return t.slots[s].load, t.slots[s].version
}

// Book turns b, a zero Booking, into a booking of the slot and raises the
// slot's version.
func (t *Tracker) Book(b *Booking, s Slot, d Demand, owner Owner) {
	*b = Booking{owner: owner, slot: s, live: true, prefill: d.PrefillTokens, own: d.OwnBlocks}
	sl := &t.slots[s]
	b.leaf = t.hold(s, d.Blocks)
	sl.load.PrefillTokens += b.prefill
	sl.load.DecodeBlocks += b.own
	sl.load.ActiveRequests++
	sl.version++
	if b.next = sl.first; b.next != nil {
		b.next.prev = b
	}
	sl.first = b
	t.live++
}

// PrefillComplete takes the booking's prompt out of the tokens to be prefilled.
// It reports false when that was done before or the booking no longer counts.
func (t *Tracker) PrefillComplete(b *Booking) bool {
	if !b.live || b.prefill == 0 {
		return false
	}
	t.slots[b.slot].load.PrefillTokens -= b.prefill
	b.prefill = 0
	return true
}

// AddBlocks adds n blocks, at least 0, that the booking's output fills.
func (t *Tracker) AddBlocks(b *Booking, n int64) bool {
	if !b.live || n < 0 {
		return false
	}
	b.own += n
	t.slots[b.slot].load.DecodeBlocks += n
	return true
}

// Release ends the booking. It reports false when it had ended before.
func (t *Tracker) Release(b *Booking) bool {
	if !b.live {
		return false
	}
	b.live = false
	sl := &t.slots[b.slot]
	sl.load.PrefillTokens -= b.prefill
	sl.load.DecodeBlocks -= b.own
	sl.load.ActiveRequests--
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
