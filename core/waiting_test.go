package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// oneEach lets each rank have so many requests.
func oneEach(requests int64, change ...func(*queue.Class)) func(*core.Config) {
	return func(c *core.Config) {
		cl := &c.Queue.Classes[0]
		cl.Busy.ActiveRequests = requests
		for _, f := range change {
			f(cl)
		}
	}
}

// outcome is how a selection that ran beside a test ended.
type outcome struct {
	sel *core.Selection
	err error
	at  time.Time
}

// selectAll starts the requests, one after the other, and returns where each
// tells how it ended.
func (w *world) selectAll(ctx context.Context, reqs ...*core.Request) []chan outcome {
	out := make([]chan outcome, len(reqs))
	for i, req := range reqs {
		out[i] = make(chan outcome, 1)
		go func() {
			sel, err := w.Select(ctx, req)
			out[i] <- outcome{sel, err, time.Now()}
		}()
	}
	return out
}

// ended are the outcomes that are there.
func ended(all []chan outcome) (out []outcome) {
	for _, ch := range all {
		select {
		case o := <-ch:
			out = append(out, o)
		default:
		}
	}
	return out
}

func sessionRequest(id, session string) *core.Request {
	req := bookRequest(id, nil)
	req.Session = session
	return req
}

func numbered(n int, make func(i int) *core.Request) (out []*core.Request) {
	for i := range n {
		out = append(out, make(i))
	}
	return out
}

// waitUntil waits for a condition, for at most ten seconds.
func waitUntil(t testing.TB, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("it has not come in ten seconds")
		}
	}
}

func TestWithTheQueueFullAdvisoryAnswersAtOnceAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, use("builtin:kv-aware"), nil, oneEach(1, func(c *queue.Class) { c.Limits.Requests = 2 }))
		w.join(t, workers("m1", 2)...)
		ctx, cancel := context.WithCancel(t.Context())
		// Two that are served, of which one has the session, and four that wait.
		waiting := w.selectAll(ctx, numbered(6, func(i int) *core.Request {
			req := sessionRequest(fmt.Sprint(i), map[int]string{0: "s"}[i])
			req.Prompt.Tokens = prompt(byte('A'+i), 64)
			return req
		})...)
		synctest.Wait()
		if _, err := w.Select(t.Context(), bookRequest("no", nil)); codeOf(err) != core.CodeQueueFull {
			t.Fatalf("got %v; want a full queue", err)
		}
		before := []any{w.Stats(), w.Partitions(), w.Reservations()}
		began := time.Now()
		for i := range 100 {
			req := &core.Request{Kind: core.Advisory, Partition: model("m1"), Prompt: core.Prompt{Tokens: prompt('B', 64)}, Session: []string{"s", "new", ""}[i%3]}
			sel, err := w.Select(t.Context(), req)
			if err != nil || sel.Reservation != nil {
				t.Fatalf("got %v, %v; want an answer without a booking", sel, err)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("advisory requests took %s", d)
		}
		if diff := cmp.Diff(before, []any{w.Stats(), w.Partitions(), w.Reservations()}); diff != "" {
			t.Errorf("advisory requests changed something (-before +after):\n%s", diff)
		}
		cancel()
		synctest.Wait()
		for _, o := range ended(waiting) {
			if o.sel != nil {
				o.sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
			}
		}
		if msg := w.leftOver(); msg != "" {
			t.Error(msg)
		}
	})
}

// A request that has waited for ten seconds is decided by what the index says
// then; one that has not, by what it said before: the index costs.
func TestEventsWhileARequestWaitsTenSecondsChangeItsChoice(t *testing.T) {
	for _, c := range []struct {
		waits   time.Duration
		refresh time.Duration
		want    string
	}{
		{9999 * time.Millisecond, 10 * time.Second, "w1"},
		{10 * time.Second, 10 * time.Second, "w2"},
		{10 * time.Second, 0, "w1"},
	} {
		t.Run(fmt.Sprint(c.waits, " of ", c.refresh), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, use("builtin:kv-aware"), nil, oneEach(1), func(cfg *core.Config) { cfg.Queue.RefreshAfter = c.refresh })
				w.join(t, workers("m1", 2)...)
				tokens := prompt('A', 320)
				w.cache.store(fleet.Worker{ID: fleet.IDFromName("w1")}, tokens[:32], 16)
				var held []*core.Selection
				for i := range 2 {
					req := bookRequest("", nil)
					req.Pin = &core.Pin{Name: fmt.Sprint("w", i+1)}
					sel, err := w.Select(t.Context(), req)
					if err != nil {
						t.Fatal(err)
					}
					held = append(held, sel)
				}
				all := w.selectAll(t.Context(), bookRequest("waits", tokens))
				synctest.Wait()
				w.cache.store(fleet.Worker{ID: fleet.IDFromName("w2")}, tokens, 16)
				<-time.After(c.waits)
				for _, sel := range held {
					sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
				}
				synctest.Wait()
				if got := ended(all); len(got) != 1 || got[0].err != nil || got[0].sel.Name != c.want {
					t.Errorf("got %+v; want %s", got, c.want)
				}
			})
		})
	}
}

func TestU2_Of100QueuedWith60Cancelled40AreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, use("builtin:least-load"), nil, oneEach(1))
		w.join(t, record("w1", "m1"))
		blocking, err := w.Select(t.Context(), bookRequest("blocks", nil))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		request := func(i int) *core.Request { return bookRequest("", prompt(byte(i), 10+i)) }
		var all []chan outcome
		var tokens int64
		for i, req := range numbered(100, request) {
			c := t.Context()
			if i%5 < 3 {
				c = ctx
			} else {
				tokens += int64(10 + i)
			}
			all = append(all, w.selectAll(c, req)...)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if got := ended(all); len(got) != 60 {
			t.Errorf("%d of 60 are gone", len(got))
		}
		q := w.stats(model("m1")).Queue[0]
		if diff := cmp.Diff(core.QueueView{Class: "default", Requests: 40, Tokens: tokens}, q); diff != "" {
			t.Errorf("waiting (-want +got):\n%s", diff)
		}
		served := 0
		for sel := blocking; sel != nil; {
			sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
			synctest.Wait()
			sel = nil
			for _, o := range ended(all) {
				if o.err != nil {
					t.Fatal(o.err)
				}
				sel, served = o.sel, served+1
			}
		}
		if msg := w.leftOver(); served != 40 || msg != "" {
			t.Errorf("%d served; want 40; %s", served, msg)
		}
	})
}

// Capacity comes free within a millisecond of the time limit: the request is
// dispatched or refused, never both and never later.
func TestU3_TimeLimitAndCapacityAtTheSameMoment(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	var dispatched, refused int
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, use("builtin:least-load"), nil, oneEach(1, func(c *queue.Class) { c.Timeout = 500 * time.Millisecond }))
			w.join(t, record("w1", "m1"))
			blocking, err := w.Select(t.Context(), bookRequest("blocks", nil))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			all := w.selectAll(t.Context(), bookRequest("waits", nil))
			synctest.Wait()
			off := time.Duration(rng.IntN(5)-2) * 500 * time.Microsecond // often exactly 0
			<-time.After(500*time.Millisecond + off)
			blocking.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
			synctest.Wait()
			<-time.After(time.Second)
			o := ended(all)[0]
			after := o.at.Sub(began)
			switch {
			case o.err == nil:
				dispatched++
				if off > 0 || w.active() != 1 {
					t.Errorf("dispatched %s after its limit, with %d active", off, w.active())
				}
				o.sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
			default:
				refused++
				if e := asError(o.err); e == nil || e.Code != core.CodeQueueTimeout || e.RetryAfter < time.Second || after < 500*time.Millisecond || after > 600*time.Millisecond {
					t.Errorf("got %v after %s; want a time-out at 500 to 600 ms", o.err, after)
				}
				if off < 0 {
					t.Errorf("refused though there was room %s before the limit", -off)
				}
			}
			if msg := w.leftOver(); msg != "" {
				t.Error(msg)
			}
		})
	}
	t.Logf("%d dispatched, %d refused", dispatched, refused)
	if dispatched == 0 || refused == 0 {
		t.Errorf("%d dispatched, %d refused; want both", dispatched, refused)
	}
}

// Two classes that always have a backlog share 2,000 dispatches by their weights;
// one of weight 1 beside one of 9 gets 7 to 13 %.
func TestU4_WeightsShareTheDispatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dispatches = 2000
		w := newWorld(t, use("builtin:least-load"), nil, oneEach(1), func(c *core.Config) {
			high, low := c.Queue.Classes[0], c.Queue.Classes[0]
			high.Name, high.Weight = "high", 9
			low.Name, low.Weight = "low", 1
			c.Queue.Classes = append(c.Queue.Classes, high, low)
		})
		w.join(t, record("w1", "m1"))
		sel, err := w.Select(t.Context(), bookRequest("blocks", nil))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		classes := map[string]string{} // by id
		next := 0
		var all []chan outcome
		arrive := func(class string) {
			next++
			id := fmt.Sprint(class, next)
			classes[id] = class
			req := bookRequest(id, nil)
			req.Prompt.Count, req.Class = 100, class
			all = append(all, w.selectAll(ctx, req)...)
		}
		for range 20 {
			arrive("high")
			arrive("low")
		}
		got := map[string]int{}
		for range dispatches {
			synctest.Wait()
			sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
			synctest.Wait()
			i := slices.IndexFunc(all, func(ch chan outcome) bool { return len(ch) > 0 })
			o := <-all[i]
			if o.err != nil {
				t.Fatal(o.err)
			}
			all = slices.Delete(all, i, i+1)
			sel = o.sel
			got[classes[sel.ID]]++
			arrive(classes[sel.ID])
		}
		if part := float64(got["low"]) / dispatches; part < 0.07 || part > 0.13 {
			t.Errorf("the low class got %.1f %%; want 7 to 13", 100*part)
		}
		cancel()
		sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		synctest.Wait()
		for _, o := range ended(all) {
			if o.sel != nil {
				o.sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
			}
		}
	})
}

func TestU5_ANewWorkerServesWhoWaitsWithoutANewRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, use("builtin:least-load"), nil, oneEach(5))
		w.join(t, record("w1", "m1"))
		first := w.selectAll(t.Context(), numbered(5, func(int) *core.Request { return bookRequest("", nil) })...)
		synctest.Wait()
		all := w.selectAll(t.Context(), numbered(20, func(int) *core.Request { return bookRequest("", nil) })...)
		<-time.After(time.Second)
		if n := w.waitingIn(model("m1")); n != 20 || len(ended(first)) != 5 {
			t.Fatalf("%d wait; want 20", n)
		}
		began := time.Now()
		w.join(t, record("w2", "m1"))
		synctest.Wait()
		got := ended(all)
		for _, o := range got {
			if o.err != nil || o.sel.Name != "w2" || o.at.Sub(began) > 200*time.Millisecond {
				t.Errorf("got %+v after %s", o, o.at.Sub(began))
			}
		}
		if len(got) != 5 {
			t.Errorf("%d were dispatched; want as many as the new worker may have", len(got))
		}
		w.remove(t, "w1", "w2")
		synctest.Wait()
		for _, o := range ended(all) {
			if codeOf(o.err) != core.CodeNoWorkers {
				t.Errorf("without a worker: got %v; want no_workers", o.err)
			}
		}
		if n := w.waitingIn(model("m1")); n != 0 {
			t.Errorf("%d wait for nobody", n)
		}
	})
}

// A flood of requests of all kinds leaves exactly the load of those that were
// admitted, and no rank above its bound.
func floodKeepsLoadEqualToTheAdmittedSum(t *testing.T) {
	w := newWorld(t, use("builtin:least-load"), nil, oneEach(4, func(c *queue.Class) { c.Limits.Requests = 8 }))
	w.join(t, workers("m1", 4)...)
	var mu sync.Mutex
	tokens, admitted := map[string]int64{}, []*core.Selection{}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				n := 16 + (g*50+i)%64
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%3)*time.Millisecond+time.Microsecond)
				sel, err := w.Select(ctx, &core.Request{Kind: core.Book, Partition: model("m1"), Prompt: core.Prompt{Count: n}})
				cancel()
				if err != nil {
					continue
				}
				if i%4 != 0 {
					sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
					continue
				}
				mu.Lock()
				tokens[sel.Name+"/0"] += int64(n)
				admitted = append(admitted, sel)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	var sum int64
	for name, l := range w.loads() {
		sum += l.ActiveRequests
		if l.PrefillTokens != tokens[name] {
			t.Errorf("%s has %d tokens; want %d", name, l.PrefillTokens, tokens[name])
		}
	}
	if sum != int64(len(admitted)) || len(admitted) == 0 {
		t.Errorf("%d active; want the %d that were admitted and not freed", sum, len(admitted))
	}
	for _, sel := range admitted {
		sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
	}
	if msg := w.leftOver(); msg != "" {
		t.Error(msg)
	}
}
