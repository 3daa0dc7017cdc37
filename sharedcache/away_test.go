package sharedcache_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/sharedcache"
)

// every calls Hits each 10 ms for as long, and counts by outcome: "ok", "away"
// and "failed".
func (r *rig) every(t *testing.T, long time.Duration) map[string]int {
	t.Helper()
	got := map[string]int{}
	for end := time.Now().Add(long); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		switch _, err := r.hits(t, 4); {
		case err == nil:
			got["ok"]++
		case errors.Is(err, sharedcache.ErrAway):
			got["away"]++
		default:
			got["failed"]++
		}
	}
	return got
}

func TestAKilledServerIsAskedAfterPausesThatDoubleUpTo5s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Time
		p := &posting{post: func(context.Context, string) (int, string, error) {
			asked = append(asked, time.Now())
			return 0, "", errors.New("refused")
		}}
		r := newRig(t, url, 5*time.Millisecond, p)
		stop := r.run(t)
		got := r.every(t, 30*time.Second)
		stop()
		if want := map[string]int{"failed": 1, "away": 2999}; !cmp.Equal(want, got) {
			t.Errorf("calls ended %v, want %v", got, want)
		}
		want := []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000}
		for i := range min(len(want), len(asked)-1) {
			longest := want[i] * time.Millisecond
			if pause := asked[i+1].Sub(asked[i]); pause > longest || pause <= longest*4/5 {
				t.Errorf("pause %d is %v, want up to a fifth below %v", i+1, pause, longest)
			}
		}
		if len(asked) < 10 {
			t.Errorf("asked %d times in 30 s", len(asked))
		}
	})
}

func TestASlowServerCostsOneDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delay atomic.Int64
		delay.Store(int64(20 * time.Millisecond))
		p := &posting{post: func(ctx context.Context, _ string) (int, string, error) {
			select {
			case <-time.After(time.Duration(delay.Load())):
				return 200, `{"ranges":[[0,1]]}`, nil
			case <-ctx.Done():
				return 0, "", ctx.Err()
			}
		}}
		r := newRig(t, url, 5*time.Millisecond, p)
		defer r.run(t)()
		if got := r.every(t, time.Minute); got["failed"] != 1 || got["ok"] != 0 {
			t.Errorf("slow: calls ended %v", got)
		}
		delay.Store(int64(time.Millisecond))
		if got := r.every(t, 10*time.Second); got["failed"] != 0 || got["ok"] < 300 || got["away"] > 500 {
			t.Errorf("quick again: calls ended %v", got)
		}
		if r.counted(t, "away", "") != 0 || r.lines("is away") != 1 || r.lines("answers again") != 1 {
			t.Errorf("log\n%s", r.log)
		}
	})
}

func TestALyingServerIsAskedEverMoreSeldomAndToldOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &posting{post: func(_ context.Context, body string) (int, string, error) {
			if isProbe(body) {
				return 200, `{"ranges":[]}`, nil
			}
			return 200, `{"ranges":[[4,1]]}`, nil
		}}
		r := newRig(t, url, 5*time.Millisecond, p)
		defer r.run(t)()
		got := r.every(t, time.Minute)
		if got["ok"] != 0 || got["failed"] > 20 || got["failed"] < 10 {
			t.Errorf("calls ended %v", got)
		}
		if n := r.failures(t, "bad_answer"); n != got["failed"] || r.lines("is away") != 1 {
			t.Errorf("counted %d bad answers, log\n%s", n, r.log)
		}
	})
}

func TestTheFirstQuestionToAServerThatIsBackMayBeSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up, connected atomic.Bool
		p := &posting{post: func(ctx context.Context, _ string) (int, string, error) {
			if !up.Load() {
				return 0, "", errors.New("refused")
			}
			wait := time.Millisecond
			if !connected.Load() {
				wait = 500 * time.Millisecond
			}
			select {
			case <-time.After(wait):
				connected.Store(true)
				return 200, `{"ranges":[]}`, nil
			case <-ctx.Done():
				return 0, "", ctx.Err()
			}
		}}
		r := newRig(t, url, 5*time.Millisecond, p)
		defer r.run(t)()
		if _, err := r.hits(t, 1); err == nil {
			t.Error("a server that is down answered")
		}
		up.Store(true)
		if got := r.every(t, time.Second); got["failed"] != 0 || got["ok"] < 30 {
			t.Errorf("calls ended %v", got)
		}
	})
}

func TestWhatWasAskedBeforeTheServerWentSaysNothingAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hang, refuse atomic.Bool
		hang.Store(true)
		p := &posting{post: func(ctx context.Context, _ string) (int, string, error) {
			switch {
			case hang.Load():
				<-ctx.Done()
				return 0, "", ctx.Err()
			case refuse.Load():
				return 0, "", errors.New("refused")
			}
			return 200, `{"ranges":[[0,1]]}`, nil
		}}
		r := newRig(t, url, time.Second, p)
		defer r.run(t)()
		old := make(chan error, 1)
		go func() {
			_, err := r.hits(t, 1)
			old <- err
		}()
		synctest.Wait()
		hang.Store(false)
		refuse.Store(true)
		if _, err := r.hits(t, 1); err == nil || r.counted(t, "away", "") != 1 {
			t.Errorf("got %v from a server that is down", err)
		}
		refuse.Store(false)
		<-time.After(300 * time.Millisecond)
		if err := <-old; err == nil || r.failures(t, "deadline") != 1 {
			t.Errorf("the old call got %v", err)
		}
		held, err := r.hits(t, 1)
		if want := []kvcache.BlockRange{{Start: 0, End: 1}}; !cmp.Equal(want, held) || err != nil || r.counted(t, "away", "") != 0 {
			t.Errorf("after it: got %v, %v", held, err)
		}
	})
}

func TestRunEndsWithItsContextWhateverItDoes(t *testing.T) {
	for name, wait := range map[string]time.Duration{"idle": -1, "in a pause": 50 * time.Millisecond, "in a question": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &posting{post: func(ctx context.Context, _ string) (int, string, error) {
					<-ctx.Done()
					return 0, "", ctx.Err()
				}}
				r := newRig(t, url, 5*time.Millisecond, p)
				stop := r.run(t)
				if wait >= 0 {
					_, _ = r.hits(t, 1)
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
