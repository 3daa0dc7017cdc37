package host

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/routerd/routerd/core/policy"
)

// noteAgain is how long a trip that could not be written down waits for the next
// try.
const noteAgain = time.Second

// byGuard is who the guard is to a policy's history.
const byGuard = "guard"

// trips are revisions that have tripped and whose trip is not written down. For
// requests a trip counts at once; the disk follows.
type trips struct {
	wake chan struct{} // capacity 1: one look takes all

	mu      sync.Mutex // guards pending
	pending []trip
}

type trip struct {
	rev        *policy.Revision
	fault      policy.Fault
	distrusted bool // by an audit, not by the guard
	told       bool // the log has it that it could not be written down
}

// tripped hears of each trip, on the goroutine of the request whose fault it
// was.
func (s *PolicySource) tripped(rev *policy.Revision, fault *policy.Fault) {
	s.trips.add(trip{rev: rev, fault: *fault})
	s.trips.wakeUp()
}

func (t *trips) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *trips) add(more ...trip) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = append(t.pending, more...)
}

func (t *trips) take() []trip {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.pending
	t.pending = nil
	return out
}

// Run does what decisions wait for nobody to do: it writes trips down, ends
// canaries that have tripped, probes tripped revisions and lets shadows decide,
// until ctx ends. Without it requests are answered all the same. It returns nil
// when its goroutines have ended.
func (s *PolicySource) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { s.desk.work(ctx) })
	wg.Go(func() { s.watchTrips(ctx) })
	wg.Wait()
	return nil
}

func (s *PolicySource) watchTrips(ctx context.Context) {
	tick := time.NewTicker(s.probing)
	defer tick.Stop()
	again := time.NewTimer(noteAgain)
	defer again.Stop()
	for {
		probes := false
		select {
		case <-ctx.Done():
			s.noteTrips()
			return
		case <-s.trips.wake:
		case <-again.C:
		case <-tick.C:
			probes = true
		}
		if !s.noteTrips() {
			again.Reset(noteAgain)
		}
		if probes {
			s.probe(ctx)
		}
	}
}

// noteTrips writes down what has tripped. What could not be written, on a full
// disk for example, is to be tried again: false.
func (s *PolicySource) noteTrips() bool {
	var later []trip
	for _, t := range s.trips.take() {
		err := s.noteTrip(t)
		if err == nil {
			continue
		}
		if !t.told {
			s.log.Error("a policy's trip could not be written down; it is tried again", slog.String("policy", t.rev.Name()), slog.Any("err", err))
		}
		t.told = true
		later = append(later, t)
	}
	s.trips.add(later...)
	return len(later) == 0
}

// noteTrip ends the canary that has tripped; of the active revision it notes
// that its fallback decides, and of one that was replaced meanwhile that it has
// tripped.
func (s *PolicySource) noteTrip(t trip) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.policies[t.rev.Name()]
	state := t.rev.State()
	if s.closed || n == nil || !t.distrusted && state != policy.Tripped && state != policy.Retired {
		return nil // an operator gave it another chance
	}
	why := fmt.Sprintf("stage %s: %s (%s)", clip(t.fault.Stage, maxWhy/2), t.fault.Code, t.fault.Reason)
	if n.shadow != nil && n.shadow.rev == t.rev {
		_, err := s.endShadow(n, Change{Who: byGuard, Why: why})
		return err
	}
	switch t.rev {
	case n.canary:
		_, err := s.endCanary(n, Change{Who: byGuard, What: whatRollback, Revision: n.history.Active, Previous: t.rev.Number(), Why: why})
		return err
	case n.active:
		if t.distrusted {
			return s.replaceDistrusted(n, why)
		}
		s.log.Warn("policy tripped: its fallback decides", slog.String("policy", n.history.Name), slog.Int("revision", t.rev.Number()), slog.String("why", why))
		return s.noteTripped(n, &keptTrip{Why: why})
	}
	if t.distrusted && n.distrusted && n.history.Active == t.rev.Number() && n.history.Trip == nil {
		return s.noteTripped(n, &keptTrip{Why: why, Distrusted: true}) // what could not be written before
	}
	// Whoever rolled back was quicker: the next rollback is to know all the same.
	if el := n.history.find(t.rev.Number()); el == nil || specDigest(el.Spec) != specDigest(t.rev.Spec()) {
		return nil // of an earlier policy of this name
	}
	if old, ok := lastTrip(n.history.Changes, t.rev.Number()); ok && old.Why == why && t.distrusted {
		return nil // audits of what has tripped say it again
	}
	return s.noteOnly(n, t.rev, why)
}

// noteTripped writes down that the active revision has tripped, and stays so over
// a restart. s.mu is held.
func (s *PolicySource) noteTripped(n *named, trip *keptTrip) error {
	next := n.history.copied()
	next.Trip = trip
	next.note(Change{Who: byGuard, What: whatTrip, Revision: next.Active, Why: trip.Why})
	return s.commit(n, next)
}

// noteOnly writes into the history that a revision which no longer decides has
// tripped. s.mu is held.
func (s *PolicySource) noteOnly(n *named, rev *policy.Revision, why string) error {
	next := n.history.copied()
	next.note(Change{Who: byGuard, What: whatTrip, Revision: rev.Number(), Why: why})
	return s.commit(n, next)
}
