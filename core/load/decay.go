package load

import "math"

// micro counts millionths of a block, so that sums of weights are exact.
type micro int64

// whole is one block.
const whole micro = 1_000_000

func (m micro) times(n int64) micro { return m * micro(n) }

func (m micro) blocks() float64 { return float64(m) / float64(whole) }

// CheckFraction refuses a number that is no weight for Decay: one that is not
// from 0 to 1, with a *fleet.FieldError for the field.
func CheckFraction(field string, f float64) error {
	if f >= 0 && f <= 1 {
		return nil
	}
	return refuseNumber(field, f, "a number from 0 to 1")
}

// Decay sets the weight of all blocks that the booking shares with nobody: those
// of its output and the last blocks of its prompt, as far as no other booking
// holds them on the rank. The fraction, from 0 to 1 in steps of a millionth, is
// that of a whole block. A block of the prompt that somebody shares later counts
// whole again, until a Decay at a time when it is shared no more. Decay reports
// false, and changes nothing, when the booking no longer counts or CheckFraction
// refuses the fraction.
func (t *Tracker) Decay(b *Booking, fraction float64) bool {
	if !b.live || CheckFraction("", fraction) != nil {
		return false
	}
	w, sl := micro(math.Round(fraction*float64(whole))), &t.slots[b.slot]
	own := w.times(b.own)
	sl.blocks += own - b.weight
	b.weight = own
	for n := b.leaf; n != nil && n != &t.root; n = n.parent {
		h := n.holder(b.slot)
		if h.count > 1 {
			break // and so it is above
		}
		sl.blocks += (w - h.weight).times(int64(len(n.run)))
		h.weight = w
	}
	return true
}
