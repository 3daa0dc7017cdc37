package catalog

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

const (
	scanEvery  = 250 * time.Millisecond
	firstPause = 500 * time.Millisecond
	lastPause  = 5 * time.Second
)

// pause is how long to wait after so many failures in a row: doubling up to
// 5 s, less up to a fifth, so that many workers do not retry at once.
func pause(failures int) time.Duration {
	d := lastPause
	if failures < 5 {
		d = min(firstPause<<max(failures-1, 0), lastPause)
	}
	return d - time.Duration(rand.Int64N(int64(d)/5))
}

// Run retries what is not ready until ctx ends, then waits for the attempts
// under way and returns nil.
func (r *Reconciler) Run(ctx context.Context) error {
	var retries sync.WaitGroup
	defer retries.Wait()
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if ids := r.due(now); len(ids) > 0 {
				retries.Go(func() { r.Bring(ctx, ids...) })
			}
		}
	}
}

// due lists the workers whose retry is due and that nobody tries now.
func (r *Reconciler) due(now time.Time) []fleet.WorkerID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []fleet.WorkerID
	for id, e := range r.entries {
		waiting := e.pending || e.lifecycle == core.Incomplete || len(e.reasons) > 0
		if waiting && !e.tried() && !now.Before(e.retryAt) {
			ids = append(ids, id)
		}
	}
	return ids
}
