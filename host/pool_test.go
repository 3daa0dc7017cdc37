package host_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
)

// slow is a guest whose seed 666 keeps its instance busy until the fuel of one
// call is used up: some tens of milliseconds.
func slow() []byte {
	return Guest{Score: sparing(Loop(Br(0))), ScoreTypes: ColumnTypes, Extra: `,"limits":{"fuel_base":1000000000}`}.Bytes()
}

// busy starts a call that holds the only instance, and waits until it does.
func busy(t *testing.T, r *host.Runtime, s policy.Scorer) (end func()) {
	t.Helper()
	var wg sync.WaitGroup
	started := make(chan struct{})
	wg.Go(func() {
		close(started)
		_, _ = s.Score(context.Background(), badTable(s, 1), make([]float64, 1), &policy.StageReport{})
	})
	<-started
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for host.Idle(s) > 0 {
		<-tick.C
	}
	return wg.Wait
}

func onlyOne(c *host.Config) {
	c.Instances, c.FuelCap, c.CallDeadline = 1, 1_000_000_000, 400*time.Millisecond
}

func TestEmptyPoolAnswersWithinPoolWait(t *testing.T) {
	r := newRuntime(t, onlyOne, func(c *host.Config) { c.PoolWait = 20 * time.Millisecond })
	s := stage(t, r, slow(), "")
	end := busy(t, r, s)
	defer end()
	began := time.Now()
	f := faulted(t, s, 1)
	if f.Code != "E_POOL" || f.Reason != "pool_wait" || f.Counts {
		t.Errorf("got %+v, want pool_wait that does not count", f)
	}
	if took := time.Since(began); took > 300*time.Millisecond {
		t.Errorf("waited %s, want about 20 ms", took)
	}
}

func TestWaitingHonoursTheRequest(t *testing.T) {
	r := newRuntime(t, onlyOne, func(c *host.Config) { c.PoolWait = 10 * time.Second })
	s := stage(t, r, slow(), "")
	end := busy(t, r, s)
	defer end()
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("caller gone")
	cancel(gone)
	_, err := s.Score(ctx, table(s, 1), make([]float64, 1), &policy.StageReport{})
	var f *policy.Fault
	if !errors.Is(err, gone) || errors.As(err, &f) {
		t.Errorf("got %v, want the request's end and no fault", err)
	}
	ctx, cancel = context.WithCancelCause(context.Background())
	cancel(policy.ErrOutOfTime)
	if _, err = s.Score(ctx, table(s, 1), make([]float64, 1), &policy.StageReport{}); !errors.As(err, &f) || f.Counts {
		t.Errorf("a decision out of time: got %v, want a fault that does not count", err)
	}
}

func TestWaiterGetsTheInstanceThatReplacesAFaultedOne(t *testing.T) {
	r := newRuntime(t, onlyOne, func(c *host.Config) { c.PoolWait, c.CallDeadline = 10*time.Second, 50*time.Millisecond })
	s := stage(t, r, slow(), "")
	end := busy(t, r, s)
	if _, _, err := score(s, 1); err != nil {
		t.Errorf("got %v, want an answer from the new instance", err)
	}
	end()
	if u := r.Usage(); u.Instances != 1 {
		t.Errorf("instances: got %d, want 1", u.Instances)
	}
}

func TestStagesOfOneModuleAndConfigurationShareAPool(t *testing.T) {
	r := newRuntime(t)
	a, b, c := stage(t, r, configured(), `{"a":1}`), stage(t, r, configured(), ` {"a" :1.0}`), stage(t, r, configured(), `{"a":2}`)
	if u := r.Usage(); u.Pools != 2 || u.Modules != 1 {
		t.Errorf("got %+v, want two pools of one module", u)
	}
	for _, s := range []policy.Scorer{a, b, c} {
		if _, _, err := score(s, 2); err != nil {
			t.Error(err)
		}
	}
}

func TestConcurrentLoadsOfOneModuleMakeItOnce(t *testing.T) {
	r, reg := childRuntime(t, t.TempDir())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := loaded(context.Background(), r, "module:test", good())
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := compiles(t, reg); n != 1 {
		t.Errorf("compiled %d times, want 1", n)
	}
	if u := r.Usage(); u != (host.Usage{}) {
		t.Errorf("usage after all closed: got %+v", u)
	}
}

func TestScoreAllocatesNothing(t *testing.T) {
	s := stage(t, newRuntime(t), good(), "")
	tab, out, ctx := table(s, 64), make([]float64, 64), context.Background()
	var r policy.StageReport
	if n := testing.AllocsPerRun(100, func() {
		if _, err := s.Score(ctx, tab, out, &r); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a call, want 0", n)
	}
}
