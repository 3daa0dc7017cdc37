package queue

import (
	"fmt"
	"math"
	"strconv"
)

const (
	// anyBatch stands for the largest batch of a worker that gives none: so large
	// that a fraction of it is rarely passed.
	anyBatch = 10_000_000
	// maxFraction bounds Busy.PrefillFraction: beyond it nothing is ever busy.
	maxFraction = 1000
)

// Busy says when a rank is busy for a class: when any of the bounds that are set is
// passed. Requests wait while every rank that may serve them is. A bound of 0 is
// off; the zero Busy never holds.
type Busy struct {
	// PrefillTokens: busy above so many active prefill tokens.
	PrefillTokens int64
	// PrefillFraction: busy above this part of the most tokens that the worker
	// batches (10,000,000 where it gives none), at most 1000.
	PrefillFraction float64
	// ActiveRequests: busy from so many active requests on. This one is a limit of
	// the rank too: it takes no more of the class, also while others are free. Of a
	// rank that only has much to prefill the policy may think that it is worth it.
	ActiveRequests int64
}

// Full tells whether a rank with so many active requests takes no more.
func (b Busy) Full(activeRequests int64) bool {
	return b.ActiveRequests > 0 && activeRequests >= b.ActiveRequests
}

// Enabled tells whether a bound is set.
func (b Busy) Enabled() bool {
	return b.PrefillTokens > 0 || b.PrefillFraction > 0 || b.ActiveRequests > 0
}

// Holds tells whether a rank with this load is busy. maxBatchedTokens below 1
// means that the worker gives none.
func (b Busy) Holds(prefillTokens float64, activeRequests, maxBatchedTokens int64) bool {
	if b.ActiveRequests > 0 && activeRequests >= b.ActiveRequests {
		return true
	}
	if b.PrefillTokens > 0 && prefillTokens > float64(b.PrefillTokens) {
		return true
	}
	if maxBatchedTokens < 1 {
		maxBatchedTokens = anyBatch
	}
	return b.PrefillFraction > 0 && prefillTokens > b.PrefillFraction*float64(maxBatchedTokens)
}

func (b Busy) validate(at string) error {
	switch {
	case b.PrefillTokens < 0:
		return refuse(at+".prefill_tokens", fmt.Sprint(b.PrefillTokens), "0 (off) or more")
	case math.IsNaN(b.PrefillFraction) || b.PrefillFraction < 0 || b.PrefillFraction > maxFraction:
		return refuse(at+".prefill_fraction", strconv.FormatFloat(b.PrefillFraction, 'g', -1, 64), "0 (off) to 1000")
	case b.ActiveRequests < 0:
		return refuse(at+".active_requests", fmt.Sprint(b.ActiveRequests), "0 (off) or more")
	}
	return nil
}
