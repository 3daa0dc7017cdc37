package load

import (
	"math"
	"time"
)

// Overload says above what a rank is overloaded. What is 0 is off; the zero
// value never says so.
type Overload struct {
	// PrefillTokens is a number of tokens to be prefilled.
	PrefillTokens int64
	// PrefillFraction is the same as a part of what the rank batches at most
	// (max_batched_tokens; 10,000,000 where the worker's record has none). It may
	// be above 1.
	PrefillFraction float64
	// KVFraction is a part, at most 1, of the rank's KV blocks.
	KVFraction float64
}

// unboundedBatch stands for max_batched_tokens where a record has none.
const unboundedBatch = 10_000_000

// Validate refuses what is not allowed, with a *fleet.FieldError.
func (o Overload) Validate() error {
	if o.PrefillTokens < 0 {
		return refuseNumber("prefill_tokens", float64(o.PrefillTokens), "a whole number, 0 for none")
	}
	if math.IsNaN(o.PrefillFraction) || o.PrefillFraction < 0 || math.IsInf(o.PrefillFraction, 1) {
		return refuseNumber("prefill_fraction", o.PrefillFraction, "a finite number, 0 for none")
	}
	return CheckFraction("kv_fraction", o.KVFraction)
}

// Enabled tells whether anything can be an overload.
func (o Overload) Enabled() bool { return o != Overload{} }

// Projected tells whether a projected load is above a limit. maxBatched and
// totalKV are the rank's, 0 where they are not known: without totalKV its blocks
// are no overload. Where the engine reports the occupancy of its blocks, l is to
// have that (Report.UsedBlocks).
func (o Overload) Projected(l Load, maxBatched, totalKV int64) bool {
	if o.PrefillTokens > 0 && l.PrefillTokens > o.PrefillTokens {
		return true
	}
	if maxBatched <= 0 {
		maxBatched = unboundedBatch
	}
	if o.PrefillFraction > 0 && float64(l.PrefillTokens) > o.PrefillFraction*float64(maxBatched) {
		return true
	}
	return o.KVFraction > 0 && totalKV > 0 && l.DecodeBlocks > o.KVFraction*float64(totalKV)
}

// Reported tells whether an engine confirms an overload: more of its KV blocks
// are used than KVFraction or, where the tokens to be prefilled have a limit,
// requests wait in its own queue. ok is false where the report says nothing of
// what is on. A report that is not fresh any more is for the caller to leave out.
func (o Overload) Reported(r Report, totalKV int64) (over, ok bool) {
	if o.KVFraction > 0 {
		used, known := r.Usage(totalKV)
		over, ok = known && used > o.KVFraction, known
	}
	if o.PrefillTokens > 0 || o.PrefillFraction > 0 {
		over, ok = over || r.Queued > 0, ok || r.Queued >= 0
	}
	return over, ok
}

// Latch holds an overload until it is over for a while. The zero value is off.
// It has no lock: whoever has it guards it.
type Latch struct {
	on   bool
	last time.Time // the last observation of an overload
}

// Observe takes in what our projection and the engine's report, if there is one,
// say at now, and tells whether the rank is overloaded. Both must say so, without
// a report the projection alone; it stays overloaded until an observation that
// is at least interval later than the last one that said so.
func (l *Latch) Observe(projected, reported, hasReport bool, now time.Time, interval time.Duration) bool {
	if projected && (reported || !hasReport) {
		l.on = true
		if l.last.Before(now) {
			l.last = now
		}
	} else if l.on && now.Sub(l.last) >= interval {
		l.on = false
	}
	return l.on
}
