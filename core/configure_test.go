package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// queued is a configuration whose class default is busy from so many requests on
// and lets so many wait for each worker.
func queued(active, waiting int64, more ...queue.Class) core.Config {
	cfg := core.DefaultConfig()
	seed := uint64(1)
	cfg.Seed = &seed
	cfg.Queue.Classes[0].Busy.ActiveRequests, cfg.Queue.Classes[0].Limits.Requests = active, waiting
	cfg.Queue.Classes = append(cfg.Queue.Classes, more...)
	return cfg
}

func (w *world) configure(t *testing.T, cfg core.Config) {
	t.Helper()
	if err := w.Configure(cfg); err != nil {
		t.Fatal(err)
	}
}

func codeOf(err error) core.Code {
	if e, ok := errors.AsType[*core.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestAChangedQueueHoldsForWhoWaitsAndWhoComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := newWorld(t, use("builtin:least-load"), nil, func(c *core.Config) { *c = queued(1, 4) })
		w.join(t, workers("m1", 1)...)
		book := func(id, class string) {
			go func() {
				req := bookRequest(id, prompt('a', 32))
				req.Class = class
				if sel, err := w.Select(ctx, req); err == nil {
					<-ctx.Done()
					sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
				}
			}()
			synctest.Wait()
		}
		waits := func() []core.QueueView { return w.Stats().Partitions[0].Queue }
		check := func(what string, active int64, want ...core.QueueView) {
			t.Helper()
			if got := w.active(); got != active {
				t.Errorf("%s: %d bookings, want %d", what, got, active)
			}
			if diff := cmp.Diff(want, waits()); diff != "" {
				t.Errorf("%s (-want +got)\n%s", what, diff)
			}
		}
		for i := range 4 {
			book(fmt.Sprint(i), "")
		}
		check("at first", 1, core.QueueView{Class: "default", Requests: 3, Tokens: 96})

		w.configure(t, queued(2, 2, queue.Class{Name: "batch", Weight: 1, Order: queue.FCFS, Timeout: time.Minute, Busy: queue.Busy{ActiveRequests: 1}, Limits: queue.Limits{Requests: 9, Tokens: queue.Unlimited, CachedTokens: queue.Unlimited}}))
		synctest.Wait()
		check("two at a time", 2, core.QueueView{Class: "batch"}, core.QueueView{Class: "default", Requests: 2, Tokens: 64})
		if _, err := w.Select(t.Context(), bookRequest("more", nil)); codeOf(err) != core.CodeQueueFull {
			t.Errorf("beyond the new limit: %v", err)
		}
		book("batch", "batch")
		check("another class", 2, core.QueueView{Class: "batch", Requests: 1, Tokens: 32}, core.QueueView{Class: "default", Requests: 2, Tokens: 64})

		w.configure(t, queued(2, 2))
		check("the class has gone", 2, core.QueueView{Class: "default", Requests: 3, Tokens: 96})

		w.configure(t, core.DefaultConfig())
		synctest.Wait()
		check("never busy", 5, core.QueueView{Class: "default"})
		cancel()
		synctest.Wait()
		check("at the end", 0, core.QueueView{Class: "default"})
	})
}

func TestAChangedOverloadHoldsAtTheNextDecision(t *testing.T) {
	w := newWorld(t, use("builtin:least-load"), nil)
	w.join(t, workers("m1", 1)...)
	next := 0
	ask := func() core.Code {
		t.Helper()
		next++
		sel, err := w.Select(t.Context(), bookRequest(fmt.Sprint(next), prompt('a', 64)))
		if err == nil {
			t.Cleanup(func() { sel.Reservation.Release(reserve.Outcome{}) })
		}
		return codeOf(err)
	}
	got := []core.Code{ask()}
	cfg := core.DefaultConfig()
	cfg.Overload = load.Overload{PrefillTokens: 32}
	w.configure(t, cfg)
	got = append(got, ask())
	w.configure(t, core.DefaultConfig())
	got = append(got, ask())
	if diff := cmp.Diff([]core.Code{"", core.CodeOverloaded, ""}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAChangedModeOfSessionsHoldsAtTheNextDecision(t *testing.T) {
	w := newWorld(t, use("builtin:least-load"), nil)
	w.join(t, workers("m1", 2)...)
	book := func(id string) string {
		t.Helper()
		req := bookRequest(id, nil)
		req.Session = "s"
		sel, err := w.Select(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sel.Reservation.Release(reserve.Outcome{}) })
		return string(sel.By)
	}
	book("1")
	got := []string{book("2")}
	cfg := core.DefaultConfig()
	cfg.Affinity.Soft = true
	w.configure(t, cfg)
	got = append(got, book("3"))
	w.configure(t, core.DefaultConfig())
	got = append(got, book("4"))
	if diff := cmp.Diff([]string{"session", "policy", "session"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A partition whose policy takes long is made with the queue as it is then.
func TestAPartitionThatIsBeingPreparedGetsTheChangedQueue(t *testing.T) {
	w := newWorld(t, use("builtin:least-load"), nil)
	asked := 0
	w.policies.gate = func(fleet.PartitionKey) error {
		if asked++; asked == 1 {
			return w.Configure(queued(1, 0))
		}
		return nil
	}
	w.join(t, workers("m1", 1)...)
	held, err := w.Select(t.Context(), bookRequest("1", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Reservation.Release(reserve.Outcome{})
	if _, err := w.Select(t.Context(), bookRequest("2", nil)); codeOf(err) != core.CodeQueueFull {
		t.Errorf("got %v, want the queue full", err)
	}
}

func TestABadConfigurationLeavesTheOldOne(t *testing.T) {
	w := newWorld(t, use("builtin:least-load"), nil)
	bad := queued(1, 0)
	bad.Overload.KVFraction = 2
	f, ok := errors.AsType[*fleet.FieldError](w.Configure(bad))
	if !ok || f.Field != "kv_fraction" {
		t.Errorf("got %v", f)
	}
	w.join(t, workers("m1", 1)...)
	for i := range 2 {
		sel, err := w.Select(t.Context(), bookRequest(fmt.Sprint(i), nil))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sel.Reservation.Release(reserve.Outcome{}) })
	}
}

func TestTheStatsCountWhatTheCoreHolds(t *testing.T) {
	w := newWorld(t, use("builtin:least-load"), nil, func(c *core.Config) { c.Affinity.Entries = 1 })
	w.join(t, workers("m2", 1)...)
	w.join(t, record("x1", "m1"))
	req := bookRequest("1", nil)
	req.Session = "s"
	sel, err := w.Select(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer sel.Reservation.Release(reserve.Outcome{})
	req = bookRequest("2", nil)
	req.Session = "no room"
	other, err := w.Select(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	other.Reservation.Release(reserve.Outcome{})
	query := bookRequest("3", nil)
	query.Kind = core.Query
	if _, err := w.Select(t.Context(), query); err != nil {
		t.Fatal(err)
	}
	got := w.Stats()
	if got.PendingBytes <= 0 {
		t.Errorf("pending selections hold %d bytes", got.PendingBytes)
	}
	got.PendingBytes = 0
	idle := []core.QueueView{{Class: "default"}}
	want := core.Stats{Reservations: 1, Pending: 1, Partitions: []core.PartitionStats{
		{Key: model("m1"), Queue: idle, Sessions: affinity.Stats{Bound: 1, Leases: 1, Full: 1}},
		{Key: model("m2"), Queue: idle},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	v := w.Partitions()[0]
	if diff := cmp.Diff(core.SessionsView{Bound: 1, Leases: 1}, v.Sessions); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(idle, v.Queue); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
