package queue

import (
	"cmp"
	"time"
)

// maxTokens bounds what one request counts for, so that sums stay in range.
const maxTokens = 1 << 40

// Waiter is a request that waits. The caller owns it and does not change its
// exported fields while it is in a queue. After it has left, it may be pushed
// again.
type Waiter struct {
	// Class is that of the request; unknown or empty is "default".
	Class string
	// Lane names the workers that the request may go to; "" is any.
	Lane string
	// Priority: the higher goes first.
	Priority int
	// Jump moves the request ahead in its class's order; see Order.
	Jump time.Duration
	// Due is when the request should have gone: the earlier first, and those with
	// a due time before those without. It ends no wait.
	Due time.Time
	// Arrival is when the request came.
	Arrival time.Time
	// Tokens are those of the prompt, and Cached the most of them that any worker
	// has.
	Tokens, Cached int64
	// Owner is the caller's.
	Owner any

	queue    *Queue // nil while it is in none
	standing *standing
	lane     *lane  // nil while it is held
	pos      int    // in the lane's heap, or among the held ones of its class
	pushed   uint64 // the number of its Push or Hold
	counts   amount
	score    float64   // higher first
	since    time.Time // earlier first
}

// place computes what the waiter counts for and its key in an order.
func (w *Waiter) place(o Order) {
	tokens := bounded(w.Tokens)
	w.counts = amount{requests: 1, tokens: tokens, cached: bounded(w.Cached)}
	if o == WSPT {
		w.score = (1 + w.Jump.Seconds()) / float64(max(1, tokens-w.counts.cached))
		w.since = w.Arrival
		return
	}
	w.score = 0
	w.since = w.Arrival.Add(-w.Jump)
}

// before is the order inside a class.
func (w *Waiter) before(o *Waiter) bool {
	if w.Priority != o.Priority {
		return w.Priority > o.Priority
	}
	if c := compareDue(w.Due, o.Due); c != 0 {
		return c < 0
	}
	if w.score != o.score {
		return w.score > o.score
	}
	return cmp.Or(w.since.Compare(o.since), w.Arrival.Compare(o.Arrival), cmp.Compare(w.pushed, o.pushed)) < 0
}

func (w *Waiter) moved(to int) { w.pos = to }

// cost is what the waiter takes of its class's share.
func (w *Waiter) cost() int64 { return max(1, w.counts.tokens) }

func compareDue(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

func bounded(tokens int64) int64 { return min(max(0, tokens), maxTokens) }
