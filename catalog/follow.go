package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/backoff"
)

// maxBrings bounds how many lists of one source are brought at once. What a
// further one changed, Run of the Reconciler tries within a quarter of a second.
const maxBrings = 8

// FollowConfig says how a source is followed.
type FollowConfig struct {
	// Resync is how long until the whole list is compared again, give or take a
	// fifth.
	Resync time.Duration
	// RetryFirst is the pause after the first loss; each further one doubles it, up
	// to RetryMost. A fifth at most is taken off by chance.
	RetryFirst, RetryMost time.Duration
}

// DefaultFollowConfig compares each minute and retries after 500 ms to 30 s.
func DefaultFollowConfig() FollowConfig {
	return FollowConfig{Resync: time.Minute, RetryFirst: 500 * time.Millisecond, RetryMost: 30 * time.Second}
}

// Follow makes what the source wants the Reconciler's until ctx ends, then waits
// for what it began and returns nil. It returns an error at once for a source whose
// name is followed already.
//
// A list is taken whole or not at all: a record that is not valid, an id, name or
// endpoint that stands twice in it, and one that another source brought first refuse
// all of it. The list before stays, the refusal is logged and counted once, and shown
// until a list is taken. A refused list is compared again as soon as another source
// let go of a worker.
//
// A source that is lost keeps its last list and is watched again after a pause. What
// it gives then is compared with that list, so that what is as before keeps its
// bookings and subscriptions.
func (s *Sources) Follow(ctx context.Context, src Source, cfg FollowConfig) error {
	f := &follower{
		sources: s, src: src, cfg: cfg, log: s.log.With("source", src.Name()),
		bringing: make(chan struct{}, maxBrings), again: make(chan struct{}, 1),
	}
	if err := s.add(f); err != nil {
		return err
	}
	defer s.remove(f)
	defer f.brings.Wait()
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() { f.watch(ctx) })
	f.compare(ctx)
	return nil
}

// follower follows one source.
type follower struct {
	sources *Sources
	src     Source
	cfg     FollowConfig
	log     *slog.Logger

	again    chan struct{} // holds one when the refused list is worth another look
	bringing chan struct{} // holds one for each list that is brought
	brings   sync.WaitGroup

	planning sync.Mutex // guards the fields below; held while a list is planned
	given    uint64     // lists that Watch gave, so that a comparison that began before one is dropped
	taken    []fleet.Record
	refused  []fleet.Record // nil when the last list was taken

	standing // guarded by Sources.mu
}

// watch keeps the source watched.
func (f *follower) watch(ctx context.Context) {
	for failures := 1; ; failures++ {
		began := time.Now()
		err := f.src.Watch(ctx, func(list []fleet.Record) error { return f.give(ctx, list) })
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the source ended by itself")
		}
		f.lost(err)
		if time.Since(began) >= f.cfg.RetryMost {
			failures = 1 // it stood for a while: this is another loss
		}
		if !sleep(ctx, backoff.Pause(f.cfg.RetryFirst, f.cfg.RetryMost, failures)) {
			return
		}
	}
}

// give takes a list that Watch hands over.
func (f *follower) give(ctx context.Context, list []fleet.Record) error {
	f.planning.Lock()
	defer f.planning.Unlock()
	f.given++
	f.stands()
	return f.plan(ctx, list)
}

// compare reads the whole list now and then, which also heals what Watch missed.
func (f *follower) compare(ctx context.Context) {
	for {
		next := time.NewTimer(f.cfg.Resync - f.cfg.Resync/5 + rand.N(f.cfg.Resync*2/5+1))
		select {
		case <-ctx.Done():
		case <-next.C:
		case <-f.again:
		}
		next.Stop()
		if ctx.Err() != nil {
			return
		}
		f.resync(ctx)
	}
}

// resync compares once, unless Watch gives a list meanwhile: that one is newer.
func (f *follower) resync(ctx context.Context) {
	before := f.gives()
	reading, cancel := context.WithTimeoutCause(ctx, f.cfg.Resync, errors.New("the list took longer than the pause between comparisons"))
	defer cancel()
	list, err := f.src.List(reading)
	if ctx.Err() != nil {
		return
	}
	f.compared(err)
	if err != nil {
		return
	}
	f.planning.Lock()
	defer f.planning.Unlock()
	if f.given == before {
		_ = f.plan(ctx, list) // told where it is shown
	}
}

func (f *follower) gives() uint64 {
	f.planning.Lock()
	defer f.planning.Unlock()
	return f.given
}

// plan hands a list to the Reconciler and has what is new or changed brought in
// the background.
func (f *follower) plan(ctx context.Context, list []fleet.Record) error {
	list, err := normalised(list)
	var changed []fleet.WorkerID
	if err == nil {
		changed, err = f.sources.reconciler.Plan(f.src.Name(), list)
	}
	if err != nil {
		f.refuse(list, err)
		return err
	}
	other := !slices.EqualFunc(f.taken, list, fleet.Record.Equal)
	f.taken, f.refused = list, nil
	f.took(len(list), other)
	f.bring(ctx, changed)
	return nil
}

// refuse shows a refusal; it is told once for each change of the list.
func (f *follower) refuse(list []fleet.Record, err error) {
	same := f.refused != nil && slices.EqualFunc(f.refused, list, fleet.Record.Equal)
	f.refused = append([]fleet.Record{}, list...)
	f.refusedFor(err, same)
}

// bring tries what changed beside everything else.
func (f *follower) bring(ctx context.Context, changed []fleet.WorkerID) {
	if len(changed) == 0 {
		return
	}
	select {
	case f.bringing <- struct{}{}:
	default:
		return // Run goes on with it
	}
	f.brings.Go(func() {
		defer func() { <-f.bringing }()
		f.sources.reconciler.Bring(ctx, changed...)
	})
}

// normalised is the list with every record in its one form. The error names the
// first record that has none; then the list comes back as it was.
func normalised(list []fleet.Record) ([]fleet.Record, error) {
	out := make([]fleet.Record, len(list))
	for i, rec := range list {
		norm, err := rec.Normalised()
		if err != nil {
			return list, fmt.Errorf("worker %d of the list: %w", i+1, err)
		}
		out[i] = norm
	}
	return out, nil
}

// sleep waits and tells whether ctx still stands.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
