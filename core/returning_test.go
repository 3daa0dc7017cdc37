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

// narrows is called when the host is asked who may serve a request; false is nobody.
type narrows func(*core.Request) bool

func (f narrows) Narrow(req *core.Request, _ []fleet.Worker, keep []bool) {
	if !f(req) {
		clear(keep)
	}
}

// The older of two was let past in vain and is on its way to the queue, where the
// younger stands, when a place is free: that is the older one's.
func TestAPlaceThatIsFreeWhileTheOlderGoesBackIsNotTheYoungers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		gate := make(chan struct{})
		s := &stage{score: func(context.Context, *policy.Table, []float64) error { <-gate; return nil }}
		goesBack, freed := false, false
		var taken *core.Selection
		host := core.SelectionHost{Eligibility: narrows(func(req *core.Request) bool {
			if goesBack && req.SelectionID == "older" {
				freed = taken.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
				goesBack = false
			}
			return true
		})}
		w := newWorldIn(t, host, use("module:s"), stages{s}, oneAtATime)
		w.join(t, record("w1", "m1"))
		older := w.start(ctx, bookRequest("older", nil)) // it decides
		var err error
		if taken, err = w.Reserve(ctx, &core.Booking{SelectionID: "taken", Partition: model("m1"), Worker: new(fleet.IDFromName("w1"))}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Millisecond)
		younger := w.start(ctx, bookRequest("younger", nil))
		if older.done || younger.done {
			t.Fatalf("got %+v, %+v; want both under way", older, younger)
		}
		goesBack = true
		close(gate)
		synctest.Wait()
		if !freed || !older.done || older.err != nil || younger.done {
			t.Errorf("freed %v, got %+v, %+v; want the older on w1 and the younger to wait", freed, older, younger)
		}
		cancel()
		synctest.Wait()
	})
}

// Who goes back and is refused on its way holds up nobody.
func TestWhoIsRefusedOnItsWayBackHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		gate := make(chan struct{})
		s := &stage{score: func(context.Context, *policy.Table, []float64) error { <-gate; return nil }}
		goesBack := false
		host := core.SelectionHost{Eligibility: narrows(func(req *core.Request) bool { return !goesBack || req.SelectionID != "older" })}
		w := newWorldIn(t, host, use("module:s"), stages{s}, oneAtATime)
		w.join(t, record("w1", "m1"))
		older := w.start(ctx, bookRequest("older", nil))
		taken, err := w.Reserve(ctx, &core.Booking{SelectionID: "taken", Partition: model("m1"), Worker: new(fleet.IDFromName("w1"))})
		if err != nil {
			t.Fatal(err)
		}
		younger := w.start(ctx, bookRequest("younger", nil))
		goesBack = true
		close(gate)
		synctest.Wait()
		if !older.done || older.err == nil || younger.done {
			t.Fatalf("got %+v, %+v; want the older gone and the younger to wait", older, younger)
		}
		taken.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		synctest.Wait()
		if !younger.done || younger.err != nil {
			t.Errorf("got %+v; want the younger on w1", younger)
		}
	})
}
