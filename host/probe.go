package host

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/core/policy"
)

// probeInterval is how often a tripped revision is probed.
const probeInterval = 30 * time.Second

// A probe asks for at most so many frames, taken so far apart.
const (
	probeFrames = 8
	probeApart  = time.Second
)

// frames are the last frames of a policy, for probes. Safe for concurrent use.
type frames struct {
	next atomic.Int64 // when the next one is taken, on the desk's clock

	mu   sync.Mutex // guards all below
	ring [probeFrames]policy.Recording
	n    int // taken in all
}

// offer takes a frame when it is time; it never waits.
func (f *frames) offer(now time.Duration, t *policy.Table) {
	due := f.next.Load()
	if int64(now) < due || !f.next.CompareAndSwap(due, int64(now+probeApart)) || !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	f.ring[f.n%probeFrames].Take(t)
	f.n++
}

// table fills t from the i-th frame; false when there is none, or when it lacks
// a column of set.
func (f *frames) table(i int, t *policy.Table, set policy.ColumnSet) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return i < min(f.n, probeFrames) && len(f.ring[i].Table(t, set)) == 0
}

// probe asks each tripped revision for the frames that its policy saw last. One
// that answers them all decides again, on probation.
func (s *PolicySource) probe(ctx context.Context) {
	for name, h := range *s.handles.Load() {
		rev := h.Active()
		if rev.State() == policy.Tripped {
			s.probeOne(ctx, name, rev)
		}
		rev.Release()
	}
}

func (s *PolicySource) probeOne(ctx context.Context, name string, rev *policy.Revision) {
	s.mu.Lock()
	n := s.policies[name]
	stands := n != nil && n.active == rev
	s.mu.Unlock()
	if !stands {
		return
	}
	good := answers(ctx, rev, &n.watch.frames)
	n.watch.probes.Add(1)
	if !good {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || n.active != rev || rev.State() != policy.Tripped {
		return
	}
	next := n.history.copied()
	next.Trip = nil
	next.note(Change{Who: byGuard, What: whatProbeOK, Revision: rev.Number(), Why: "it answers the last frames: on probation"})
	if err := s.commit(n, next); err != nil {
		s.log.Error("a policy's probe could not be written down", slog.String("policy", name), slog.Any("err", err))
		return
	}
	rev.HalfOpen()
	s.log.Info("policy decides again, on probation", slog.String("policy", name), slog.Int("revision", rev.Number()))
}

// answers tells whether a revision answers all frames; false when there is
// none.
func answers(ctx context.Context, rev *policy.Revision, f *frames) bool {
	var t policy.Table
	var d policy.Decision
	asked := 0
	for i := range probeFrames {
		if !f.table(i, &t, rev.Columns()) {
			continue
		}
		if err := rev.Replay(ctx, &t, &d); err != nil || d.Fault != nil {
			return false
		}
		asked++
	}
	return asked > 0
}
