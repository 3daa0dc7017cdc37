package queue

import (
	"fmt"
	"math"
)

// Unlimited is a limit that nothing reaches.
const Unlimited = -1

// What FullError.Kind can be.
const (
	KindRequests     = "requests"
	KindTokens       = "tokens"
	KindCachedTokens = "cached_tokens"
)

// Limits bound what waits in a class, for each ready worker of the partition. A
// request is refused when a limit is reached before it is added, so that one
// long prompt may wait alone. 0 lets nobody wait; Unlimited lets all.
type Limits struct {
	Requests int64
	// Tokens are prompt tokens.
	Tokens int64
	// CachedTokens are those of the prompts that are cached where most are.
	CachedTokens int64
}

// FullError refuses a request because a limit of its class is reached.
type FullError struct {
	Class string
	// Kind is KindRequests, KindTokens or KindCachedTokens.
	Kind string
	// Current is what waits and Limit what may, for all workers together.
	Current, Limit int64
}

// Error names the class, the limit and both numbers.
func (e *FullError) Error() string {
	return fmt.Sprintf("queue class %q is full: %d %s wait, at most %d may", e.Class, e.Current, e.Kind, e.Limit)
}

// amount is what waits.
type amount struct{ requests, tokens, cached int64 }

func (a *amount) add(b amount) {
	a.requests += b.requests
	a.tokens += b.tokens
	a.cached += b.cached
}

func (a *amount) sub(b amount) {
	a.requests -= b.requests
	a.tokens -= b.tokens
	a.cached -= b.cached
}

// full reports the first limit that a class has reached. No worker counts as
// one: what is wrong then is not that the queue is full.
func (cl *Class) full(has amount, workers int) error {
	for _, l := range [...]struct {
		kind           string
		current, limit int64
	}{
		{KindRequests, has.requests, cl.Limits.Requests},
		{KindTokens, has.tokens, cl.Limits.Tokens},
		{KindCachedTokens, has.cached, cl.Limits.CachedTokens},
	} {
		if l.limit < 0 {
			continue
		}
		if most := times(l.limit, max(workers, 1)); l.current >= most {
			return &FullError{Class: cl.Name, Kind: l.kind, Current: l.current, Limit: most}
		}
	}
	return nil
}

// times is limit × workers, neither below 0, or the largest number.
func times(limit int64, workers int) int64 {
	if limit > math.MaxInt64/int64(workers) {
		return math.MaxInt64
	}
	return limit * int64(workers)
}

func (l Limits) validate(at string) error {
	for _, f := range [...]struct {
		name  string
		limit int64
	}{
		{".requests", l.Requests}, {".tokens", l.Tokens}, {".cached_tokens", l.CachedTokens},
	} {
		if f.limit < Unlimited {
			return refuse(at+f.name, fmt.Sprint(f.limit), "-1 (unlimited), 0 (nobody waits) or more")
		}
	}
	return nil
}
