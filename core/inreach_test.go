package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// What books nothing goes elsewhere while nobody can reach the worker of its session, which is
// in reach again by the end of its decision: its booking does not leave the session
// behind, as that of a query does that asks for what the worker lacks.
func TestABookingDoesNotGoPastASessionWhoseWorkerIsInReachAgain(t *testing.T) {
	for name, kind := range map[string]core.Kind{"query": core.Query, "advisory": core.Advisory} {
		t.Run(name, func(t *testing.T) { bookingInReachAgain(t, kind) })
	}
}

func bookingInReachAgain(t *testing.T, kind core.Kind) {
	synctest.Test(t, func(t *testing.T) {
		slow := false
		s := &stage{score: func(context.Context, *policy.Table, []float64) error {
			if slow {
				<-time.After(2 * time.Second) // its inhibition is over
			}
			return nil
		}}
		w := newWorld(t, use("module:s"), stages{s}, bindsFor(time.Hour))
		w.join(t, record("w1", "m1"), record("w2", "m1"))
		first, err := w.Select(t.Context(), sessionRequest("first", "s"))
		if err != nil {
			t.Fatal(err)
		}
		w.Inhibit(first.Worker.ID)
		slow = true
		query := sessionRequest("second", "s")
		query.Kind = kind
		if sel, err := w.Select(t.Context(), query); err != nil || sel.Worker == first.Worker {
			t.Fatalf("got %+v, %v; want the other worker", sel, err)
		}
		if sel, err := w.Reserve(t.Context(), &core.Booking{SelectionID: "second", Partition: model("m1")}); codeOf(err) != core.CodeConflict {
			t.Errorf("got %+v, %v; want a conflict with the session", sel, err)
		}
		if got, ok := w.BoundTo(model("m1"), "s"); !ok || got != (fleet.Worker{ID: first.Worker.ID}) {
			t.Errorf("the session is bound to %v", got)
		}
		first.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
	})
}
