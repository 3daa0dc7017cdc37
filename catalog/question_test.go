package catalog_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

const (
	slowness = 4 * time.Second        // how long a slow engine takes to answer
	atOnce   = 300 * time.Millisecond // a turn of Run, and a little
)

// questions counts those that are under way.
type questions struct {
	*stage
	underWay atomic.Int64
}

func (q *questions) Ask(ctx context.Context, rec fleet.Record) (catalog.Facts, error) {
	q.underWay.Add(1)
	defer q.underWay.Add(-1)
	return q.stage.Ask(ctx, rec)
}

// asking runs f with a Reconciler that has one ready worker, w1.
func asking(t *testing.T, f func(t *testing.T, q *questions, r *catalog.Reconciler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := &questions{stage: newStage()}
		q.answer(0, 100)
		r := catalog.New(catalog.Parts{Core: q, Listeners: q, Engines: q, Health: q}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = r.Run(ctx) })
		apply(t, r, record(t, 1, unsized))
		f(t, q, r)
		cancel()
		running.Wait()
	})
}

// answer says how the engine of w1 answers from now on.
func (q *questions) answer(after time.Duration, kv int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.engines["http://127.0.0.1:8001"] = told{after: after, facts: catalog.Facts{Models: []string{"m"}, BlockSize: 16, TotalKVBlocks: kv}}
}

// says tells how w1 stands.
func (q *questions) says(r *catalog.Reconciler, lifecycle core.Lifecycle, reasons ...string) {
	q.mu.Lock()
	q.standing[1] = standing{lifecycle, reasons}
	q.mu.Unlock()
	r.Reconsider(1)
}

// await lets time pass until a question is under way.
func (q *questions) await(t *testing.T) {
	t.Helper()
	for range 1000 {
		if q.underWay.Load() > 0 {
			return
		}
		<-time.After(100 * time.Millisecond) // the bubble's clock
	}
	t.Fatal("the engine is not asked")
}

func wantSoon(t *testing.T, r *catalog.Reconciler, want string) {
	t.Helper()
	<-time.After(atOnce) // the bubble's clock
	if got := lifecycles(r)["w1"]; got != want {
		t.Errorf("after %s the worker is %q, want %q", atOnce, got, want)
	}
}

func TestHealthTakesEffectWhileTheEngineIsAsked(t *testing.T) {
	asking(t, func(t *testing.T, q *questions, r *catalog.Reconciler) {
		q.answer(slowness, 200)
		q.await(t)
		q.says(r, core.Ejected, "down")
		wantSoon(t, r, "ejected down")
		<-time.After(slowness + 2*time.Second) // the bubble's clock
		if v, _ := r.Worker("w1"); v.TotalKVBlocks != 200 {
			t.Errorf("the question that was cut off was not asked again: %d blocks", v.TotalKVBlocks)
		}
	})
}

// A worker that serves in spite of a reason is asked when that changes, but not first.
func TestHealthTakesEffectBeforeTheEngineIsAsked(t *testing.T) {
	asking(t, func(t *testing.T, q *questions, r *catalog.Reconciler) {
		<-time.After(time.Minute) // the bubble's clock
		q.says(r, core.Ready, "kept")
		wantSoon(t, r, "ready kept")
		q.answer(slowness, 100)
		q.says(r, core.Ejected, "down")
		wantSoon(t, r, "ejected down")
		q.await(t)
	})
}

func TestAWorkerThatComesBackIsAskedFirst(t *testing.T) {
	asking(t, func(t *testing.T, q *questions, r *catalog.Reconciler) {
		<-time.After(time.Minute) // the bubble's clock
		q.says(r, core.Ejected, "down")
		<-time.After(time.Minute) // the bubble's clock
		q.answer(slowness, 300)
		q.says(r, core.Ready)
		wantSoon(t, r, "ejected down")
		<-time.After(slowness) // the bubble's clock
		if v, _ := r.Worker("w1"); v.Lifecycle != core.Ready || v.TotalKVBlocks != 300 {
			t.Errorf("%s with %d blocks", v.Lifecycle, v.TotalKVBlocks)
		}
	})
}

func TestTheQuestionOfAWorkerThatLeavesOrChangesIsCutOff(t *testing.T) {
	for name, list := range map[string][]fleet.Record{
		"leaves":  nil,
		"changes": {record(t, 1, unsized, func(r *fleet.Record) { r.Taints = []string{"new"} })},
	} {
		t.Run(name, func(t *testing.T) {
			asking(t, func(t *testing.T, q *questions, r *catalog.Reconciler) {
				q.answer(time.Hour, 100)
				q.await(t)
				q.answer(0, 100)
				if _, err := r.Plan("file", list); err != nil {
					t.Fatal(err)
				}
				<-time.After(atOnce) // the bubble's clock
				if n := q.underWay.Load(); n != 0 {
					t.Errorf("%d questions go on", n)
				}
				if len(list) > 0 {
					wantSoon(t, r, "ready")
				}
			})
		})
	}
}
