package catalog

import (
	"context"
	"sync"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/backoff"
)

const (
	scanEvery  = 250 * time.Millisecond
	firstPause = 500 * time.Millisecond
	lastPause  = 5 * time.Second
	// leastAsk is how long what an engine told is taken for true, and the longest pause
	// between questions that it does not answer, in a small fleet; in a larger one it is
	// askShare for each worker, so that there are never more than so many questions.
	leastAsk = 30 * time.Second
	askShare = 60 * time.Millisecond
)

// askEvery is the pause between two questions to one engine. mu must be held.
func (r *Reconciler) askEvery() time.Duration {
	return max(leastAsk, time.Duration(len(r.entries))*askShare)
}

// askLater plans when the engine is asked next. A worker of which nobody watches the
// health is asked only for what it cannot do without. mu must be held.
func (r *Reconciler) askLater(e *entry, a *attempt, now time.Time) {
	switch {
	case a.want.NoHealthCheck || a.err != nil:
		e.askAt = time.Time{} // an incomplete one is tried again anyhow
	case e.doubts > a.doubts, !a.asked && e.askAt.IsZero():
		e.askAt = now
	case a.asked && a.facts == a.was:
		e.silences++
		e.askAt = now.Add(backoff.Pause(firstPause, r.askEvery(), e.silences))
	case a.asked:
		e.silences = 0
		e.askAt = now.Add(backoff.Pause(r.askEvery(), r.askEvery(), 1))
	}
}

// Reconsider has a worker looked at again: its health has changed. For one that serves
// that takes effect at once, whatever question to its engine is under way; one that was
// not well is asked again what it is, also where it is being asked now. It returns at
// once; an id that is not known is ignored. Safe for concurrent use.
func (r *Reconciler) Reconsider(id fleet.WorkerID) {
	r.mu.Lock()
	if e := r.entries[id]; e != nil {
		e.again = true
		r.mayBeAnother(e)
		if e.hasNews() {
			e.hush(errNews)
		}
	}
	r.mu.Unlock()
	r.hurry()
}

// mayBeAnother has an engine asked again that was not well or that drained, so that it may
// come back as another one. mu must be held.
func (r *Reconciler) mayBeAnother(e *entry) {
	if (e.lifecycle != core.Ready || len(e.reasons) > 0) && !e.askAt.IsZero() {
		e.askAt = time.Now()
		e.doubts++
	}
}

// hurry wakes Run.
func (r *Reconciler) hurry() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run retries what is not ready, looks at what has changed and asks engines again,
// until ctx ends; then it waits for the attempts under way and returns nil.
func (r *Reconciler) Run(ctx context.Context) error {
	var retries sync.WaitGroup
	defer retries.Wait()
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	for {
		now := time.Now()
		select {
		case <-ctx.Done():
			return nil
		case now = <-tick.C:
			r.endDrains(now)
		case <-r.wake:
		}
		if ids := r.due(now); len(ids) > 0 {
			retries.Go(func() { r.bring(ctx, ids, true) })
		}
	}
}

// due lists the workers whose next attempt is due and that nobody tries now.
func (r *Reconciler) due(now time.Time) []fleet.WorkerID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []fleet.WorkerID
	for id, e := range r.entries {
		if e.due(now) {
			ids = append(ids, id)
		}
	}
	return ids
}

// due tells whether the next attempt is due and nobody makes one now. mu must be held.
func (e *entry) due(now time.Time) bool {
	waits := (e.pending || e.failures > 0) && !now.Before(e.retryAt)
	asks := !e.askAt.IsZero() && !now.Before(e.askAt)
	return (waits || asks || e.again) && !e.tried()
}
