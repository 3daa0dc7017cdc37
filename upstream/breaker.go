package upstream

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Why a breaker?
//
// A worker that does not answer would hold each request that is sent to it for
// a whole time limit. After a few failures in a row its breaker opens: calls
// fail at once, so that the caller can go elsewhere. When the cooldown is over,
// one call at a time is let through; BreakerConfig.Successes in a row that are
// answered below 400 close the breaker, a failure opens it for twice as long.
//
// An answer below 400 is a success. Failures are: no connection, a time limit
// before the head of the answer is complete, a connection that breaks or an
// answer that cannot be read until then, and 5xx but 501, 503 and 505. Neither
// are 4xx, 501 and 505 (the request's fault), 503 (a worker that is full is well;
// engines send it for a full queue also without Retry-After), a cancelled call,
// and what this machine lacks, such as free ports. A trial that ends as neither
// leaves the turn to the next call. Bodies that break off are the caller's to
// judge.
//
// A call counts for the state that it began in: of fifty calls that hang
// together, five open the breaker, and the others' ends change nothing.

// breakerState is where a breaker stands.
type breakerState uint32

const (
	breakerClosed breakerState = iota
	breakerOpen
	breakerHalfOpen // one call at a time
	breakerStates
)

// String returns the state's name: closed, open or half_open.
func (s breakerState) String() string {
	return [breakerStates]string{"closed", "open", "half_open"}[min(s, breakerStates-1)]
}

// verdict is what the end of a call says of the worker.
type verdict uint8

const (
	verdictNone verdict = iota
	verdictSuccess
	verdictFailure
)

// breaker belongs to one endpoint: workers behind one address that differ in
// their path fail apart. It is made at the first failure; an endpoint without one
// is well.
type breaker struct {
	ep Endpoint

	// Read without mu by calls to a worker that is well; changed under it.
	state    atomic.Uint32 // breakerState
	epoch    atomic.Uint64 // rises with each change of state
	failures atomic.Int32  // in a row, while closed

	mu        sync.Mutex    // guards all below and changes of the above
	cooldown  time.Duration // of the latest opening; 0 when closed
	until     time.Time     // the end of it
	touched   time.Time     // last failure, trial or change of state
	trying    bool          // a trial is under way
	successes int           // trials in a row that were answered
	reason    string        // what the latest failure was
	changes   []change      // to be told, in order
	telling   bool          // somebody is at it
	gone      bool          // to be forgotten: no call counts any more

	due atomic.Bool // there may be changes to be told
}

// change is one change of a breaker's state.
type change struct {
	to     breakerState
	reason string
}

// pass is the right to one call; leave takes it back.
type pass struct {
	b     *breaker // nil for an endpoint that had none
	among *map[Endpoint]*breaker
	epoch uint64
	trial bool
}

// enter gives a call its pass, or the wait after which it may ask again and what
// the worker's latest failure was.
func (b *breaker) enter(now time.Time) (p pass, wait time.Duration, reason string, ok bool) {
	if epoch := b.epoch.Load(); b.standing() == breakerClosed {
		return pass{b: b, epoch: epoch}, 0, "", true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ripen(now)
	switch b.standing() {
	case breakerOpen:
		return pass{}, b.until.Sub(now), b.reason, false
	case breakerHalfOpen:
		if b.trying {
			return pass{}, 0, b.reason, false
		}
		b.trying, b.touched = true, now
		return pass{b: b, epoch: b.epoch.Load(), trial: true}, 0, "", true
	default:
		return pass{b: b, epoch: b.epoch.Load()}, 0, "", true
	}
}

// leave ends a call that had a pass and counts what it was.
func (b *breaker) leave(p pass, v verdict, reason string, cfg *BreakerConfig, now time.Time) {
	if !p.trial && (v == verdictNone || v == verdictSuccess && b.failures.Load() == 0) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || p.epoch != b.epoch.Load() {
		return
	}
	if p.trial {
		b.trying, b.touched = false, now
	}
	switch v {
	case verdictSuccess:
		b.answered(p, cfg, now)
	case verdictFailure:
		b.failed(p, reason, cfg, now)
	}
}

// answered counts a success. mu must be held.
func (b *breaker) answered(p pass, cfg *BreakerConfig, now time.Time) {
	b.failures.Store(0)
	if !p.trial {
		return
	}
	if b.successes++; b.successes >= cfg.Successes {
		b.cooldown = 0
		b.become(breakerClosed, "answers again", now)
	}
}

// failed counts a failure. mu must be held.
func (b *breaker) failed(p pass, reason string, cfg *BreakerConfig, now time.Time) {
	b.reason, b.touched = reason, now
	n := b.failures.Add(1)
	if cfg.Failures == 0 || !p.trial && int(n) < cfg.Failures {
		return
	}
	b.cooldown = min(max(2*b.cooldown, cfg.Cooldown), cfg.MaxCooldown)
	b.until = now.Add(b.cooldown)
	why := fmt.Sprintf("%d failures in a row, the latest: %s", n, reason)
	if p.trial {
		why = "the trial failed: " + reason
	}
	b.become(breakerOpen, why, now)
}

// ripen lets an open breaker whose cooldown is over take trials. mu must be
// held.
func (b *breaker) ripen(now time.Time) {
	if b.standing() == breakerOpen && !now.Before(b.until) {
		b.become(breakerHalfOpen, "the cooldown is over: one call at a time", now)
	}
}

// become changes the state. mu must be held.
func (b *breaker) become(s breakerState, reason string, now time.Time) {
	b.state.Store(uint32(s))
	b.epoch.Add(1)
	b.trying, b.successes, b.touched = false, 0, now
	if s == breakerClosed {
		b.failures.Store(0)
	}
	b.changes = append(b.changes, change{s, reason})
	b.due.Store(true)
}

// tell hands the changes that are due to fn, in their order and with no lock
// held: whoever is at it does it for all.
func (b *breaker) tell(fn func(change)) {
	if !b.due.Load() {
		return
	}
	for c, ok := b.next(false); ok; c, ok = b.next(true) {
		fn(c)
	}
}

// next takes the next change to be told, unless somebody else is at it.
func (b *breaker) next(mine bool) (c change, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.telling && !mine {
		return change{}, false
	}
	if b.telling = len(b.changes) > 0; !b.telling {
		b.changes = nil
		b.due.Store(false)
		return change{}, false
	}
	c = b.changes[0]
	b.changes = b.changes[1:]
	return c, true
}

// rest is a sweep's look at the breaker; true means that it is to be forgotten:
// it is closed and counts nothing, or nobody has called for long. What ends
// until then changes nothing, so that no opening is forgotten with it.
func (b *breaker) rest(now time.Time, long time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ripen(now)
	switch b.standing() {
	case breakerClosed:
		b.gone = b.failures.Load() == 0 || now.Sub(b.touched) > long
	case breakerHalfOpen:
		b.gone = !b.trying && now.Sub(b.touched) > long
	}
	return b.gone
}

// reset closes the breaker. What is under way counts no more.
func (b *breaker) reset(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures.Store(0)
	b.cooldown = 0
	if b.standing() != breakerClosed {
		b.become(breakerClosed, reason, time.Now())
	}
}

func (b *breaker) standing() breakerState { return breakerState(b.state.Load()) }
