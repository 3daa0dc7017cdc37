package load

import (
	"fmt"
	"strconv"
	"time"

	"github.com/routerd/routerd/fleet"
)

// EstimatorKind names a way to tell how long a prefill takes.
type EstimatorKind string

// The kinds of estimators; the empty kind is EstimateNone.
const (
	// EstimateNone does not tell: a prompt counts whole until its prefill is
	// complete.
	EstimateNone EstimatorKind = "none"
	// EstimateRate goes by a given number of tokens a second.
	EstimateRate EstimatorKind = "rate"
	// EstimateLearned goes by what each rank's first tokens took.
	EstimateLearned EstimatorKind = "learned"
)

// Estimator tells how long the prefill of a prompt should take. The zero value
// is EstimateNone.
type Estimator struct {
	Kind EstimatorKind
	// TokensPerSecond is what a rank prefills: above 0 and at most 1e9 for
	// EstimateRate, else 0.
	TokensPerSecond float64
}

const maxRate = 1e9 // tokens a second

// Validate refuses what the kinds do not allow, with a *fleet.FieldError.
func (e Estimator) Validate() error {
	switch e.Kind {
	case "", EstimateNone, EstimateLearned:
		if e.TokensPerSecond != 0 {
			return refuseNumber("tokens_per_second", e.TokensPerSecond, "nothing but with kind "+string(EstimateRate))
		}
	case EstimateRate:
		if e.TokensPerSecond > 0 && e.TokensPerSecond <= maxRate {
			return nil
		}
		return refuseNumber("tokens_per_second", e.TokensPerSecond, "a number above 0, at most 1e9")
	default:
		return &fleet.FieldError{
			Field: "kind", Value: string(e.Kind),
			Allowed: fmt.Sprintf("%s, %s, %s", EstimateNone, EstimateRate, EstimateLearned),
		}
	}
	return nil
}

func refuseNumber(field string, value float64, allowed string) error {
	return &fleet.FieldError{Field: field, Value: strconv.FormatFloat(value, 'g', -1, 64), Allowed: allowed}
}

// longest is the longest time that a prefill is expected to take; so that the
// sum over 100,000 bookings of a rank stays within 64 bits.
const longest = 24 * time.Hour

// expected is how long the prefill of a number of tokens, above 0, should take;
// 0 when nobody can tell.
func (e Estimator) expected(tokens int64, p *pace) time.Duration {
	switch e.Kind {
	case EstimateRate:
		return bounded(float64(tokens) / e.TokensPerSecond)
	case EstimateLearned:
		if p.seconds > 0 {
			return bounded(float64(tokens) * (p.seconds / p.tokens))
		}
	}
	return 0
}

// bounded is a number of seconds as a time that is neither 0 nor too long.
func bounded(seconds float64) time.Duration {
	if seconds >= longest.Seconds() {
		return longest
	}
	return max(time.Duration(seconds*float64(time.Second)), 1)
}

// alpha is the weight of the newest sample in a rank's moving average: after ten
// more a sample has a tenth of its weight.
const alpha = 0.2

// pace is what was learned of one rank: the moving averages of how long first
// tokens took and of how many uncached tokens were before them. Their ratio is
// the time a token takes; averaged apart, a prompt weighs by its length, so that
// the fixed part of a short one's time says little.
type pace struct {
	seconds, tokens float64   // tokens is 0 before the first sample
	last            time.Time // the last first token
	shown           uint64    // place of the newest prefill with a first token
}

// When does a first token teach?
//
// What the rank did for others before does not count: the time is taken from the
// later of the booking and the rank's previous first token. That is right only if
// the prefill right ahead, if there was one at the booking, was over by then. It is
// known to have been when it, or one that was booked after it, had its first token:
// a rank prefills in the order of booking. Of an answer that came whole, and of one
// that was given up, nobody knows when its prefill was over. It may have been long
// before the booking ended, or never, so that the end of the booking is no moment to
// count from: the prefill behind teaches nothing, but its first token is the next
// such moment. A first token that comes after that of a prefill booked later teaches
// nothing either: the rank did not keep the order.

// learn takes in that the first token of an uncached prompt came at now.
func (p *pace) learn(b *Booking, now time.Time) {
	from := b.booked
	if from.Before(p.last) {
		from = p.last
	}
	teaches := b.behind <= p.shown && p.shown < b.place
	p.shown = max(p.shown, b.place)
	if p.last.Before(now) {
		p.last = now
	}
	if teaches {
		p.average(max(now.Sub(from).Seconds(), 0), float64(b.prefill))
	}
}

// average takes in one sample.
func (p *pace) average(seconds, n float64) {
	if p.tokens == 0 {
		p.seconds, p.tokens = seconds, n
		return
	}
	p.seconds += alpha * (seconds - p.seconds)
	p.tokens += alpha * (n - p.tokens)
}
