package load

import (
	"math/bits"
	"time"
)

// How do the tokens to be prefilled decay?
//
// A rank prefills one prompt after the other, in the order of booking. The time
// since the anchor, at which the oldest active prefill had its turn, is spent on
// the whole backlog: on the oldest for as long as it should take, then on the
// next. When the oldest has gone the next one's turn begins at that moment,
// whatever was expected. When another one has gone before the oldest, the time
// that it should have taken was not spent on the rest: the anchor moves forward
// by it, but not past now. What is left of a prompt is rounded up to whole tokens.
//
// As long as some prefill is not modelled nobody can tell how far the time
// reaches, and no more than the oldest may decay. A rank of which something was
// learned stays so: what is not modelled is older than all that is, so that then
// nothing decays.

// backlog is the active prefills of one rank.
type backlog struct {
	oldest, newest *Booking
	places         uint64        // given out
	tokens         int64         // sum over all, undecayed
	expected       time.Duration // sum over all that are modelled
	anchor         time.Time
}

// push appends a booking whose prefill begins to be active.
func (l *backlog) push(b *Booking, now time.Time) {
	l.places++
	b.place = l.places
	if b.before = l.newest; b.before != nil {
		b.before.after, b.behind = b, b.before.place
	} else {
		l.oldest, l.anchor = b, now
	}
	l.newest = b
	l.tokens += b.prefill
	l.expected += b.expected
}

// remove takes out a booking whose prefill is over or given up.
func (l *backlog) remove(b *Booking, now time.Time) {
	if b == l.oldest {
		l.anchor = now
	} else if moved := l.anchor.Add(b.expected); moved.Before(now) {
		l.anchor = moved
	} else if l.anchor.Before(now) {
		l.anchor = now
	}
	if b.before != nil {
		b.before.after = b.after
	} else {
		l.oldest = b.after
	}
	if b.after != nil {
		b.after.before = b.before
	} else {
		l.newest = b.before
	}
	b.before, b.after = nil, nil
	l.tokens -= b.prefill
	l.expected -= b.expected
}

// left is the number of tokens that should be left at now.
func (l *backlog) left(now time.Time) int64 {
	if l.expected == 0 { // nothing is modelled
		return l.tokens
	}
	return l.modelled(now)
}

func (l *backlog) modelled(now time.Time) int64 {
	if l.oldest.expected == 0 {
		return l.tokens
	}
	spent := now.Sub(l.anchor)
	if spent <= 0 {
		return l.tokens
	}
	if spent >= l.expected {
		return 0
	}
	left := l.tokens
	for b := l.oldest; ; b = b.after {
		left -= b.done(spent)
		if spent <= b.expected {
			return left
		}
		spent -= b.expected
	}
}

// done is how many tokens of a modelled prefill are over after it had its turn
// for the time spent: the whole ones.
func (b *Booking) done(spent time.Duration) int64 {
	if spent >= b.expected {
		return b.prefill
	}
	high, low := bits.Mul64(uint64(b.prefill), uint64(spent))
	done, _ := bits.Div64(high, low, uint64(b.expected)) // below prefill, for spent is below expected
	return int64(done)
}
