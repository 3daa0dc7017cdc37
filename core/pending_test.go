package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

var completed = reserve.Outcome{Kind: reserve.Completed}

// kept has a query of a session kept under the id "q".
func kept(t *testing.T, w *world, session string) {
	t.Helper()
	q := bookRequest("q", prompt('A', 20))
	q.Kind, q.Session = core.Query, session
	if _, err := w.Select(t.Context(), q); err != nil {
		t.Fatal(err)
	}
}

func reserveKept(ctx context.Context, w *world, change ...func(*core.Booking)) (*core.Selection, error) {
	b := &core.Booking{SelectionID: "q", Partition: model("m1")}
	for _, f := range change {
		f(b)
	}
	return w.Reserve(ctx, b)
}

// Four book one selection at once, and whoever has booked it releases at once: the
// id is free again while others have seen the selection.
func TestAKeptSelectionIsBookedOnce(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, record("w1", "m1"), record("w2", "m1"))
	for i := range 2000 {
		kept(t, w, "")
		var booked atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				sel, err := reserveKept(t.Context(), w)
				switch {
				case err == nil:
					booked.Add(1)
					sel.Reservation.Release(completed)
				case codeOf(err) != core.CodeNotFound && codeOf(err) != core.CodeConflict:
					t.Errorf("unexpected: %v", err)
				}
			})
		}
		wg.Wait()
		if n := booked.Load(); n != 1 {
			t.Fatalf("round %d: booked %d times", i, n)
		}
	}
	if msg := w.leftOver(); msg != "" {
		t.Error(msg)
	}
}

func TestABookingThatNamesItsWorkerAndFailsLeavesTheKeptSelection(t *testing.T) {
	for name, change := range map[string]func(*world, *core.Booking){
		"a worker that drains": func(w *world, b *core.Booking) {
			if err := w.SetLifecycle(fleet.IDFromName("w2"), core.Draining, nil); err != nil {
				t.Fatal(err)
			}
		},
		"a worker that is not known": func(_ *world, b *core.Booking) { b.Worker = new(fleet.IDFromName("w9")) },
		"a rank that does not exist": func(_ *world, b *core.Booking) { b.Rank = new(uint32(7)) },
		"too much uncached":          func(_ *world, b *core.Booking) { b.Uncached = new(1) },
		"a session bound elsewhere":  func(_ *world, b *core.Booking) { b.Session = "mine" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, use("builtin:kv-aware"), nil)
			w.join(t, record("w1", "m1"))
			if _, err := w.Select(t.Context(), inSession("bound", "mine")); err != nil {
				t.Fatal(err)
			}
			kept(t, w, "")
			w.join(t, record("w2", "m1"))
			_, err := reserveKept(t.Context(), w, func(b *core.Booking) {
				b.Worker = new(fleet.IDFromName("w2"))
				change(w, b)
			})
			if err == nil {
				t.Fatal("booked")
			}
			if sel, err := reserveKept(t.Context(), w); err != nil || sel.Name != "w1" {
				t.Errorf("the kept selection: %+v, %v", sel, err)
			}
		})
	}
}

func TestABookingThatNamesItsWorkerDropsTheKeptSelection(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, record("w1", "m1"), record("w2", "m1"))
	kept(t, w, "")
	sel, err := reserveKept(t.Context(), w, func(b *core.Booking) { b.Worker = new(fleet.IDFromName("w2")) })
	if err != nil {
		t.Fatal(err)
	}
	sel.Reservation.Release(completed)
	if _, err := reserveKept(t.Context(), w); codeOf(err) != core.CodeNotFound {
		t.Errorf("got %v", err)
	}
}

func TestWhatContradictsTheKeptSelectionIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, session string
		change        func(*core.Booking)
		field         string
	}{
		{"its own session", "mine", func(b *core.Booking) { b.Session = "mine" }, ""},
		{"no session said", "mine", func(*core.Booking) {}, ""},
		{"another session", "mine", func(b *core.Booking) { b.Session = "yours" }, "session_id"},
		{"a session where there was none", "", func(b *core.Booking) { b.Session = "mine" }, "session_id"},
		{"a rank without a worker", "", func(b *core.Booking) { b.Rank = new(uint32(0)) }, "dp_rank"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, use("builtin:kv-aware"), nil)
			w.join(t, record("w1", "m1"))
			kept(t, w, c.session)
			_, err := reserveKept(t.Context(), w, c.change)
			if c.field == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			fe, ok := errors.AsType[*fleet.FieldError](err)
			if !ok || fe.Field != c.field || codeOf(err) != core.CodeInvalid {
				t.Fatalf("got %v", err)
			}
			for _, session := range []string{"mine", "yours"} {
				if bound, ok := w.BoundTo(model("m1"), session); ok {
					t.Errorf("%s was bound to %v", session, bound)
				}
			}
			if _, err := reserveKept(t.Context(), w); err != nil {
				t.Errorf("the kept selection was lost: %v", err)
			}
		})
	}
}

func TestARankThatDoesNotExistIsNamedWithItsRange(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	rec := record("w1", "m1")
	rec.DPStart, rec.DPSize = 4, 2
	w.join(t, rec)
	_, err := reserveKept(t.Context(), w, func(b *core.Booking) {
		b.Worker, b.Rank = new(fleet.IDFromName("w1")), new(uint32(7))
	})
	e, ok := errors.AsType[*core.Error](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	want := fmt.Sprintf("worker %s has no rank 7; it has ranks 4 to 5", fleet.IDFromName("w1"))
	if diff := cmp.Diff([]string{string(core.CodePinUnknown), "dp_rank", want}, []string{string(e.Code), e.Field, e.Message}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
