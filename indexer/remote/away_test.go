package remote_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/indexer/remote"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
)

// A primary that is killed or hangs costs each caller one deadline at most, and comes back
// by itself.
func TestAPrimaryGoesAndComesBack(t *testing.T) {
	const deadline, callers = 200 * time.Millisecond, 8
	p := newPrimary(1)
	w := ranks(2)
	p.store(w[0], sequence(0, 100))
	blocks := hashes(t, sequence(0, 10), 1)
	for _, network := range []string{"tcp", "unix"} {
		for _, how := range []string{"killed", "hanging"} {
			t.Run(network+" "+how, func(t *testing.T) {
				l := listen(t, network, p.answer)
				r := newRig(t, 1, deadline, l)
				defer r.run(t)()
				var slowest, held, without atomic.Int64
				ctx, stop := context.WithCancel(context.Background())
				var all sync.WaitGroup
				defer all.Wait()
				defer stop()
				for range callers {
					all.Go(func() {
						for ctx.Err() == nil {
							begun := time.Now()
							switch got := r.held(blocks, w...); got[0] {
							case kvcache.Overlap{Device: 10}:
								held.Add(1)
							case kvcache.Overlap{}:
								without.Add(1)
								<-time.After(time.Millisecond)
							default:
								t.Errorf("got %+v", got)
							}
							if took := int64(time.Since(begun)); took > slowest.Load() {
								slowest.Store(took)
							}
						}
					})
				}
				more := func(n *atomic.Int64) func() bool {
					was := n.Load()
					return func() bool { return n.Load() > was+300 }
				}
				for range 2 {
					testkit.Until(t, "finds are answered", more(&held))
					was := r.Stats().Finds
					if how == "killed" {
						l.kill()
					} else {
						l.hang.Store(true)
					}
					testkit.Until(t, "finds go on without", more(&without))
					now := r.Stats().Finds
					if n := now[remote.Deadline] + now[remote.Unreachable] - was[remote.Deadline] - was[remote.Unreachable]; n < 1 || n > callers {
						t.Errorf("%d of %d callers waited or were refused", n, callers)
					}
					if r.Trusted(w[0]) || !r.Away() {
						t.Error("a rank is trusted while the primary is away")
					}
					if how == "killed" {
						l.start(t)
					} else {
						l.hang.Store(false)
					}
				}
				testkit.Until(t, "finds are answered again", more(&held))
				if !r.Trusted(w[0]) || r.Away() {
					t.Error("back, and no rank is trusted")
				}
				if away, back := r.log.Count("is away"), r.log.Count("answers again"); away != 2 || back != 2 {
					t.Errorf("told %d times that it went, %d that it came\n%s", away, back, r.log)
				}
				if took := time.Duration(slowest.Load()); took > 5*deadline {
					t.Errorf("the slowest find took %s, the deadline is %s", took, deadline)
				}
			})
		}
	}
}

// Whatever a primary answers that it should not, requests are routed by load.
func TestWrongAnswersAreFailures(t *testing.T) {
	p := newPrimary(1)
	w := ranks(2)
	p.store(w[0], sequence(0, 100))
	blocks := hashes(t, sequence(0, 10), 1)
	for name, c := range map[string]struct {
		answer func(ctx context.Context, good []byte) (int, []byte, error)
		want   remote.Outcome
	}{
		"refused":  {func(context.Context, []byte) (int, []byte, error) { return 0, nil, errors.New("refused") }, remote.Unreachable},
		"status":   {func(context.Context, []byte) (int, []byte, error) { return 401, []byte("{}"), nil }, remote.Status},
		"torn":     {func(_ context.Context, good []byte) (int, []byte, error) { return 200, good[:len(good)-1], nil }, remote.BadAnswer},
		"empty":    {func(context.Context, []byte) (int, []byte, error) { return 200, nil, nil }, remote.BadAnswer},
		"too many": {func(_ context.Context, good []byte) (int, []byte, error) { return 200, append(good, good[12:]...), nil }, remote.BadAnswer},
		"more held than asked": {func(_ context.Context, good []byte) (int, []byte, error) {
			good[18]++ // the first rank's blocks on the device, 10
			return 200, good, nil
		}, remote.BadAnswer},
		"slow": {func(ctx context.Context, good []byte) (int, []byte, error) {
			<-ctx.Done()
			return 0, nil, ctx.Err()
		}, remote.Deadline},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var right atomic.Bool
				r := newRig(t, 1, 20*time.Millisecond, posting(func(ctx context.Context, path string, body []byte) (int, []byte, error) {
					status, answer := p.answer(path, body)
					if right.Load() {
						return status, answer, nil
					}
					return c.answer(ctx, answer)
				}))
				begun := time.Now()
				for range 100 {
					if got := r.held(blocks, w...); got[0] != (kvcache.Overlap{}) || r.Trusted(w[0]) {
						t.Fatalf("got %+v, trusted %t", got, r.Trusted(w[0]))
					}
				}
				if took := time.Since(begun); took > 20*time.Millisecond {
					t.Errorf("100 finds took %s", took)
				}
				s := r.Stats()
				if s.Finds[c.want] != 1 || s.Finds[remote.Away] != 99 || r.log.Count("reason="+string(c.want)) != 1 {
					t.Errorf("counted %+v\n%s", s, r.log)
				}
				defer r.run(t)()
				right.Store(true)
				<-time.After(50 * time.Millisecond)
				if got := r.held(blocks, w...); got[0].Device != 10 || !r.Trusted(w[0]) {
					t.Errorf("afterwards: %+v", got)
				}
			})
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	for name, wait := range map[string]time.Duration{"idle": -1, "in a pause": 20 * time.Millisecond, "in a question": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1, 5*time.Millisecond, posting(func(ctx context.Context, _ string, _ []byte) (int, []byte, error) {
					<-ctx.Done()
					return 0, nil, ctx.Err()
				}))
				stop := r.run(t)
				if wait >= 0 {
					r.held([]kvcache.BlockHash{1}, ranks(1)...)
					r.Record(ranks(1)[0], []kvcache.BlockHash{1}, true)
					<-time.After(wait)
				}
				begun := time.Now()
				stop()
				if took := time.Since(begun); took != 0 {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
