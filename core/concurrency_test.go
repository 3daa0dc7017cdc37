package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

func workers(modelName string, n int) []fleet.Record {
	var out []fleet.Record
	for i := range n {
		out = append(out, record(fmt.Sprintf("w%d", i+1), modelName))
	}
	return out
}

func bookRequest(id string, tokens []uint32) *core.Request {
	return &core.Request{Kind: core.Book, SelectionID: id, Partition: model("m1"), Prompt: core.Prompt{Tokens: tokens}}
}

// queueing has a core in which 30 requests on a rank make it busy.
func queueing(on bool) func(*core.Config) {
	return func(c *core.Config) {
		if on {
			c.Queue.Classes[0].Busy = queue.Busy{ActiveRequests: 30}
		}
	}
}

func TestQ3_SimultaneousBookingsSpreadEvenly(t *testing.T) {
	for _, c := range []struct {
		spec   string
		queued bool
	}{{"builtin:kv-aware", false}, {"builtin:least-load", false}, {"module:slow", false}, {"builtin:kv-aware", true}, {"module:slow", true}} {
		spec := c.spec
		t.Run(fmt.Sprint(spec, " queue ", c.queued), func(t *testing.T) {
			slow := &stage{score: func(_ context.Context, t *policy.Table, scores []float64) error {
				for i, a := range t.Column(abi.ColLoadActiveRequests) {
					scores[i] = -a
				}
				<-time.After(100 * time.Microsecond) // others book meanwhile
				return nil
			}}
			slow.columns.AddStd(abi.ColLoadActiveRequests)
			w := newWorld(t, use(spec), stages{slow}, func(c *core.Config) { c.TurnLimit = time.Second }, queueing(c.queued))
			w.join(t, workers("m1", 4)...)
			var wg sync.WaitGroup
			start := make(chan struct{})
			for i := range 100 {
				wg.Go(func() {
					<-start
					if _, err := w.Select(t.Context(), bookRequest(fmt.Sprint(i), prompt(byte(i), 200))); err != nil {
						t.Error(err)
					}
				})
			}
			close(start)
			wg.Wait()
			for name, l := range w.loads() {
				if l.ActiveRequests < 23 || l.ActiveRequests > 27 {
					t.Errorf("%s has %d bookings; want 25 ± 2: %v", name, l.ActiveRequests, w.loads())
				}
			}
		})
	}
}

// TestQ1_OneHotPrefixDoesNotPileUp: 400 requests at once whose long beginning one
// of eight equal workers holds.
func TestQ1_OneHotPrefixDoesNotPileUp(t *testing.T) {
	for _, done := range []bool{false, true} {
		t.Run(fmt.Sprint("prefill done ", done), func(t *testing.T) {
			w := newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) { c.TurnLimit = time.Second })
			w.join(t, workers("m1", 8)...)
			prefix := prompt('P', 2000)
			w.cache.store(fleet.Worker{ID: fleet.IDFromName("w1")}, prefix, 16)
			start := make(chan struct{})
			var wg sync.WaitGroup
			var turn sync.Mutex // so that nobody books between a booking and the end of its prefill, which the sum below does not have
			for i := range 400 {
				wg.Go(func() {
					<-start
					tail := prompt('T', 200)
					for k := range tail {
						tail[k] += uint32(1000 * (i + 1))
					}
					if done {
						turn.Lock()
						defer turn.Unlock()
					}
					sel, err := w.Select(t.Context(), bookRequest(fmt.Sprint(i), append(slices.Clone(prefix), tail...)))
					if err != nil {
						t.Error(err)
						return
					}
					if done {
						sel.Reservation.PrefillComplete()
					}
				})
			}
			close(start)
			wg.Wait()
			var most, sum float64
			used := 0
			for _, l := range w.loads() {
				cost := float64(l.PrefillTokens)/16 + l.DecodeBlocks
				most, sum = max(most, cost), sum+cost
				if l.ActiveRequests > 0 {
					used++
				}
			}
			t.Logf("the busiest has %.2f of the mean; %d workers used", most/(sum/8), used)
			if used < 6 || most > 1.6*sum/8 {
				t.Errorf("the busiest has %.2f of the mean, want at most 1.6; %d workers used, want 6", most/(sum/8), used)
			}
		})
	}
}

func TestQ2_SequentialUnrelatedPromptsSpread(t *testing.T) {
	for _, reversed := range []bool{false, true} {
		w := newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) { c.Seed = nil })
		recs := workers("m1", 4)
		for i := range recs {
			if reversed {
				w.join(t, recs[len(recs)-1-i])
			} else {
				w.join(t, recs[i])
			}
		}
		got := map[string]int{}
		for i := range 400 {
			sel, err := w.Select(t.Context(), bookRequest(fmt.Sprint(i), []uint32{uint32(i), 1, 2, 3}))
			if err != nil {
				t.Fatal(err)
			}
			got[sel.Name]++
			sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		}
		for _, r := range recs {
			if n := got[r.Name]; n < 60 || n > 140 {
				t.Errorf("reversed %v: %s got %d of 400; want 60 to 140", reversed, r.Name, n)
			}
		}
	}
}

func TestR4_EqualIDsAreOneBookingAndOneConflict(t *testing.T) {
	for _, queued := range []bool{false, true} {
		t.Run(fmt.Sprint("queue ", queued), func(t *testing.T) { equalIDs(t, queueing(queued)) })
	}
}

func equalIDs(t *testing.T, change func(*core.Config)) {
	w := newWorld(t, use("builtin:kv-aware"), nil, change)
	w.join(t, workers("m1", 4)...)
	var booked, conflicts atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		for range 2 {
			wg.Go(func() {
				_, err := w.Select(t.Context(), bookRequest(fmt.Sprint(i), prompt('A', 64)))
				var e *core.Error
				switch {
				case err == nil:
					booked.Add(1)
				case errors.As(err, &e) && e.Code == core.CodeConflict:
					conflicts.Add(1)
				default:
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if booked.Load() != 100 || conflicts.Load() != 100 || w.active() != 100 || w.Reservations() != 100 {
		t.Errorf("booked %d, conflicts %d, load %d, reservations %d; want 100 each",
			booked.Load(), conflicts.Load(), w.active(), w.Reservations())
	}
}

func TestM9_WorkerDeletedBetweenDecisionAndCommit(t *testing.T) {
	var w *world
	strike := make(chan string, 1) // the worker to delete during the next decision
	s := &stage{score: func(_ context.Context, tb *policy.Table, scores []float64) error {
		select {
		case name := <-strike:
			if err := w.Commit(core.Change{Removals: []fleet.WorkerID{fleet.IDFromName(name)}}); err != nil {
				return err
			}
		default:
		}
		for i, r := range tb.Rows {
			if r.ID == fleet.IDFromName("w1") {
				scores[i] = 1 // w1 is always preferred
			}
		}
		return nil
	}}
	w = newWorld(t, use("module:m"), stages{s})
	for i := range 1000 {
		w.join(t, workers("m1", 2)...)
		both := i%2 == 1
		if both {
			w.remove(t, "w2")
		}
		strike <- "w1"
		sel, err := w.Select(t.Context(), bookRequest("r", prompt('A', 64)))
		switch {
		case both:
			if e, ok := errors.AsType[*core.Error](err); !ok || e.Code != core.CodeNoWorkers {
				t.Fatalf("without another worker: got %v, %v; want no_workers", sel, err)
			}
			continue
		case err != nil:
			t.Fatal(err)
		case sel.Name != "w2" || sel.Endpoint != "http://w2.test:8000":
			t.Fatalf("got %s at %s; want w2, w1 was deleted", sel.Name, sel.Endpoint)
		}
		if _, ok := w.loads()["w1/0"]; ok {
			t.Fatal("the load of the deleted worker is back")
		}
		sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
	}
	if w.active() != 0 || w.Reservations() != 0 {
		t.Errorf("bookings left: %v, reservations %d", w.loads(), w.Reservations())
	}
}

func TestM9_DeletingAndSelectingRace(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, workers("m1", 2)...)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				sel, err := w.Select(t.Context(), bookRequest(fmt.Sprint(c, "-", i), prompt(byte(i), 64)))
				if err != nil {
					if e, ok := errors.AsType[*core.Error](err); !ok || e.Code != core.CodeNoWorkers {
						t.Errorf("got %v; want no_workers or an answer", err)
					}
					continue
				}
				sel.Reservation.FirstToken(time.Now())
				sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
			}
		})
	}
	for i := range 1000 {
		w.remove(t, fmt.Sprintf("w%d", i%2+1))
		w.join(t, workers("m1", 2)...)
	}
	close(done)
	wg.Wait()
	if w.active() != 0 || w.Reservations() != 0 {
		t.Errorf("bookings left: %v, reservations %d", w.loads(), w.Reservations())
	}
}

// rivals returns a world of two workers whose policy prefers w1 and calls during
// before it answers, once for each request whose prompt has want tokens.
func rivals(t *testing.T, want int, during func(w *world, call int)) *world {
	var w *world
	calls := 0
	s := &stage{score: func(_ context.Context, tb *policy.Table, scores []float64) error {
		if int(tb.Field(abi.FieldISLTokens)) == want {
			calls++
			during(w, calls)
		}
		for i, r := range tb.Rows {
			if r.ID == fleet.IDFromName("w1") {
				scores[i] = 1
			}
		}
		return nil
	}}
	w = newWorld(t, use("module:m"), stages{s}, func(c *core.Config) { c.TurnLimit = time.Minute }) // nobody is hurried
	w.join(t, workers("m1", 2)...)
	return w
}

func TestReleaseDuringADecisionIsNoConflict(t *testing.T) {
	var held *core.Selection
	w := rivals(t, 32, func(w *world, _ int) {
		held.Reservation.FirstToken(time.Now())
		held.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
	})
	held, err := w.Select(t.Context(), bookRequest("other", prompt('B', 64)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Select(t.Context(), bookRequest("mine", prompt('A', 32))); err != nil {
		t.Fatal(err)
	}
	if e := w.heard.decided[1]; e.Conflicts != 0 {
		t.Errorf("got %d conflicts; want 0", e.Conflicts)
	}
}

func TestTurnAfterTwoConflicts(t *testing.T) {
	var seeds []uint64
	w := rivals(t, 32, func(w *world, call int) {
		// Each decision is made void by a booking on the same rank; in the
		// turn it counts all the same.
		if call <= 3 {
			done, patience := make(chan struct{}), 10*time.Second
			if call == 3 { // it waits for the turn
				patience = 200 * time.Millisecond // to decide, and then in vain
			}
			go func() {
				defer close(done)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				_, _ = w.Select(ctx, bookRequest(fmt.Sprint("rival", call), prompt('B', 64)))
			}()
			<-done
		}
	})
	req := bookRequest("mine", prompt('A', 32))
	sel, err := w.Select(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	seeds = append(seeds, *req.Seed)
	rec, _ := w.Decisions().Get(sel.DecisionID)
	last := w.heard.decided[len(w.heard.decided)-1]
	if last.Conflicts != 2 || !last.Turn || sel.Name != "w1" {
		t.Errorf("got %d conflicts, turn %v, worker %s; want 2, true, w1", last.Conflicts, last.Turn, sel.Name)
	}
	if rec.Request.Seed != seeds[0] {
		t.Errorf("seed changed over the attempts: %d, %d", rec.Request.Seed, seeds[0])
	}
	// Only final attempts are recorded: two rivals, the third gave up waiting
	// for the turn, and the request itself.
	if got := w.Decisions().Len(); got != 3 {
		t.Errorf("got %d records; want 3", got)
	}
}

func TestDecisionsWaitForTheTurnInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rival *core.Selection
		rivalDone := make(chan time.Time, 1)
		w := rivals(t, 32, func(w *world, call int) {
			switch call {
			case 1, 2:
				if _, err := w.Select(t.Context(), bookRequest(fmt.Sprint("r", call), prompt('B', 64))); err != nil {
					t.Error(err)
				}
			case 3: // in the turn
				go func() {
					sel, err := w.Select(context.Background(), bookRequest("late", prompt('B', 64)))
					if err != nil {
						t.Error(err)
					}
					rival = sel
					rivalDone <- time.Now()
				}()
				<-time.After(10 * time.Millisecond) // less than the turn's limit
			}
		})
		if _, err := w.Select(t.Context(), bookRequest("mine", prompt('A', 32))); err != nil {
			t.Fatal(err)
		}
		end := time.Now()
		if at := <-rivalDone; at.Before(end) {
			t.Errorf("the rival committed %s before the turn ended", end.Sub(at))
		}
		if rival == nil || rival.Name != "w1" {
			t.Errorf("rival got %v; want w1", rival)
		}
	})
}

func TestTurnThatTakesTooLongIsDecidedByTheFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		calls := 0
		s := &stage{score: func(ctx context.Context, tb *policy.Table, scores []float64) error {
			if tb.Field(abi.FieldISLTokens) != 32 {
				return nil
			}
			if calls++; calls <= 2 {
				for range 2 { // both ranks get a booking
					if _, err := w.Select(t.Context(), bookRequest("", prompt('B', 64))); err != nil {
						t.Error(err)
					}
				}
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		w = newWorld(t, use("module:m"), stages{s})
		w.join(t, workers("m1", 1)...)
		start := time.Now()
		sel, err := w.Select(t.Context(), bookRequest("mine", prompt('A', 32)))
		if err != nil {
			t.Fatal(err)
		}
		if sel.By != policy.ByFallback || time.Since(start) != core.DefaultConfig().TurnLimit {
			t.Errorf("got by %s after %s; want fallback after %s", sel.By, time.Since(start), core.DefaultConfig().TurnLimit)
		}
	})
}

func TestCallerThatLeavesWhileItWaitsForATurnPassesItOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var w *world
		s := &stage{score: func(ctx context.Context, tb *policy.Table, _ []float64) error {
			if _, inTurn := ctx.Deadline(); inTurn {
				<-gate
				return nil
			}
			// Leaving and coming back makes the decision void.
			id := tb.Rows[0].ID
			return errors.Join(w.SetLifecycle(id, core.Draining, nil), w.SetLifecycle(id, core.Ready, nil))
		}}
		w = newWorld(t, use("module:m"), stages{s}, func(c *core.Config) { c.TurnLimit = time.Minute })
		w.join(t, workers("m1", 1)...)
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 3)
		for i := range 3 {
			c := t.Context()
			if i == 1 {
				c = ctx
			}
			go func() {
				_, err := w.Select(c, bookRequest(fmt.Sprint("mine", i), prompt('A', 32)))
				results <- err
			}()
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v; want the cancelled caller first", err)
		}
		close(gate)
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}
