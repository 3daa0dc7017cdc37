package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// Faults that the model checker has found in how requests wait.

// oneAtATime lets every rank have one request at a time.
func oneAtATime(c *core.Config) {
	c.Queue.Classes[0].Busy = queue.Busy{ActiveRequests: 1}
}

// selected is a Select on a goroutine of its own.
type selected struct {
	sel  *core.Selection
	err  error
	done bool
}

func (w *world) start(ctx context.Context, req *core.Request) *selected {
	out := &selected{}
	go func() {
		out.sel, out.err = w.Select(ctx, req)
		out.done = true
	}()
	synctest.Wait()
	return out
}

func inSession(id, session string) *core.Request {
	req := bookRequest(id, prompt('A', 20))
	req.Session = session
	return req
}

func TestARequestThatItsSessionsWorkerCannotServeDoesNotStandInItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w := newWorld(t, use("builtin:kv-aware"), nil, oneAtATime)
		w.join(t, record("w1", "m1"))
		if first := w.start(ctx, inSession("r1", "s")); !first.done {
			t.Fatal("the first request of the session waits")
		}
		second := w.start(ctx, inSession("r2", "s")) // in the lane of w1
		other := record("w2", "m1")
		other.Adapters = []fleet.Adapter{{Name: "ad"}}
		w.join(t, other)
		req := inSession("r3", "s")
		req.Adapter = "ad"
		third := w.start(ctx, req)
		if second.done || !third.done || third.err != nil || third.sel.Name != "w2" {
			t.Errorf("got %+v, %+v; want the second to wait for w1, and w2 for the third", second, third)
		}
		cancel()
		synctest.Wait()
	})
}

func TestAQueryWhoseSessionsWorkerIsDrainingWaitsForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w := newWorld(t, use("builtin:kv-aware"), nil, oneAtATime)
		w.join(t, record("w1", "m1"))
		w.start(ctx, inSession("r1", "s"))
		w.join(t, record("w2", "m1"))
		other := w.start(ctx, bookRequest("r2", prompt('B', 20)))
		if err := w.SetLifecycle(fleet.IDFromName("w1"), core.Draining, nil); err != nil {
			t.Fatal(err)
		}
		req := inSession("", "s")
		req.Kind = core.Query
		query := w.start(ctx, req)
		if query.done {
			t.Fatalf("got %+v; want it to wait for w2", query)
		}
		other.sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		synctest.Wait()
		if !query.done || query.err != nil || query.sel.Name != "w2" {
			t.Errorf("got %+v; want w2", query)
		}
	})
}

func TestASessionWhoseWorkerIsOutOfReachDoesNotWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w := newWorld(t, use("builtin:kv-aware"), nil, oneAtATime)
		w.join(t, record("w1", "m1"))
		w.start(ctx, inSession("r1", "s"))
		w.join(t, record("w2", "m1"))
		waits := w.start(ctx, inSession("r2", "s"))
		w.Inhibit(fleet.IDFromName("w1"))
		comes := w.start(ctx, inSession("r3", "s"))
		if waits.done || !comes.done || comes.err != nil || comes.sel.Name != "w2" {
			t.Errorf("got %+v, %+v; want w2 for who comes after the failure", waits, comes)
		}
		comes.sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		w.Tick(time.Now())
		synctest.Wait()
		if !waits.done || waits.err != nil || waits.sel.Name != "w2" {
			t.Errorf("got %+v; want the waiting one to follow its session to w2", waits)
		}
	})
}

// Whoever has a grant and then waits for its session's next initialiser gives the
// grant back: the initialiser may need that very rank.
func TestWhoWaitsForAnInitialiserHoldsNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w := newWorld(t, use("builtin:kv-aware"), nil, oneAtATime)
		w.join(t, record("w1", "m1"))
		w.start(ctx, inSession("r1", "s"))
		second, third := w.start(ctx, inSession("r2", "s")), w.start(ctx, inSession("r3", "s"))
		w.join(t, record("w2", "m1"))
		other := w.start(ctx, bookRequest("other", prompt('B', 20)))
		if err := w.SetLifecycle(fleet.IDFromName("w1"), core.Draining, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := w.Granted(model("m1")); n != 0 {
			t.Errorf("%d have a grant and do not go", n)
		}
		other.sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		synctest.Wait()
		for _, r := range []*selected{second, third} {
			if r.done {
				r.sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
				synctest.Wait()
			}
		}
		for _, r := range []*selected{second, third} {
			if !r.done || r.err != nil || r.sel.Name != "w2" {
				t.Errorf("got %+v; want w2", r)
			}
		}
	})
}

func TestWhoWaitsForItsSessionsWorkerFollowsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w := newWorld(t, use("builtin:kv-aware"), nil, oneAtATime)
		w.join(t, record("w1", "m1"))
		w.start(ctx, inSession("r1", "s"))
		second := w.start(ctx, inSession("r2", "s")) // waits for w1
		w.join(t, record("w2", "m1"))
		retry := inSession("r3", "s")
		retry.Attempt, retry.Exclude = 1, []fleet.Worker{{ID: fleet.IDFromName("w1")}}
		third := w.start(ctx, retry)
		if second.done || !third.done || third.err != nil || third.sel.Name != "w2" {
			t.Fatalf("got %+v, %+v; want w2 for the retry, which is busy then", second, third)
		}
		third.sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		synctest.Wait()
		if !second.done || second.err != nil || second.sel.Name != "w2" {
			t.Errorf("got %+v; want w2, where its session is", second)
		}
	})
}

// Who was out of reach when a request looked is looked at again when it goes.
func TestWhoWaitedSeesThatAWorkerIsInReachAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w := newWorld(t, use("builtin:kv-aware"), nil, oneAtATime)
		w.join(t, workers("m1", 2)...)
		w.Inhibit(fleet.IDFromName("w2"))
		w.start(ctx, bookRequest("r1", prompt('A', 20)))
		second := w.start(ctx, bookRequest("r2", prompt('A', 20)))
		if second.done {
			t.Fatalf("got %+v; want it to wait for w1", second)
		}
		<-time.After(2 * time.Second) // w2 is in reach again
		w.Tick(time.Now())
		synctest.Wait()
		if !second.done || second.err != nil || second.sel.Name != "w2" {
			t.Errorf("got %+v; want w2", second)
		}
	})
}

// Two of one session wait for its worker, the first for an adapter that no other
// has: where the worker is out of reach the second does not stand behind it.
func TestWhoWaitsForASessionsWorkerWithoutAnAdapterIsNotBehindOneThatNeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w := newWorld(t, use("builtin:kv-aware"), nil, oneAtATime)
		first := record("w1", "m1")
		first.Adapters = []fleet.Adapter{{Name: "ad"}}
		w.join(t, first)
		w.start(ctx, inSession("r1", "s"))
		req := inSession("r2", "s")
		req.Adapter = "ad"
		needs := w.start(ctx, req) // nobody else has it
		plain := w.start(ctx, inSession("r3", "s"))
		w.join(t, record("w2", "m1"))
		w.Inhibit(fleet.IDFromName("w1"))
		w.Tick(time.Now())
		synctest.Wait()
		if needs.done || !plain.done || plain.err != nil || plain.sel.Name != "w2" {
			t.Errorf("got %+v, %+v; want the first to wait for w1 and w2 for the second", needs, plain)
		}
		cancel()
		synctest.Wait()
	})
}

// Who was passed over while a request waited may be in reach by the time that it
// goes: it goes there, and nobody behind it before it.
func TestWhoWaitsSeesAWorkerThatIsInReachAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		asked := 0
		s := &stage{score: func(context.Context, *policy.Table, []float64) error { asked++; return nil }}
		w := newWorld(t, use("module:s"), stages{s}, oneAtATime)
		w.join(t, record("w1", "m1"), record("w2", "m1"))
		on := map[string]*selected{}
		for _, id := range []string{"a", "b"} {
			got := w.start(ctx, bookRequest(id, nil))
			on[got.sel.Name] = got
		}
		w.Inhibit(fleet.IDFromName("w1"))
		first, second := w.start(ctx, bookRequest("first", nil)), w.start(ctx, bookRequest("second", nil))
		<-time.After(2 * time.Second) // its inhibition is over
		before := asked
		on["w1"].sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		synctest.Wait()
		if !first.done || first.err != nil || first.sel.Name != "w1" || second.done {
			t.Errorf("got %+v, %+v; want the first on w1 and the second to wait", first, second)
		}
		if n := asked - before; n != 1 {
			t.Errorf("the policy was asked %d times; want once", n)
		}
	})
}
