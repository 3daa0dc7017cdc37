package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
)

// 200 bookings whose callers give up at random times within 5 ms, while the policy
// takes as long, with and without a queue, with and without sessions: whoever gets
// an error has booked nothing, and whoever gets a booking owns it.
func TestR3_CallersThatGiveUpLeaveNothing(t *testing.T) {
	for _, c := range []struct {
		name     string
		queue    bool
		sessions int
	}{
		{"plain", false, 0}, {"sessions", false, 20}, {"queue", true, 0}, {"queue and sessions", true, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, 3))
				slow := &stage{score: func(ctx context.Context, tb *policy.Table, _ []float64) error {
					select {
					case <-time.After(time.Duration(tb.Seed % uint64(5*time.Millisecond))):
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}}
				change := []func(*core.Config){bindsFor(time.Minute)}
				if c.queue {
					change = append(change, oneEach(4))
				}
				w := newWorld(t, use("module:slow"), stages{slow}, change...)
				w.join(t, workers("m1", 4)...)
				var all []chan outcome
				for i := range 200 {
					req := bookRequest(fmt.Sprint(i), prompt(byte(i%7), 64))
					if c.sessions > 0 {
						req.Session = fmt.Sprint("s", i%c.sessions)
					}
					seed := rng.Uint64()
					req.Seed = &seed
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.Int64N(int64(5*time.Millisecond))))
					t.Cleanup(cancel)
					all = append(all, w.selectAll(ctx, req)...)
				}
				<-time.After(10 * time.Millisecond)
				var booked, gaveUp int
				for _, o := range ended(all) {
					if o.err != nil {
						gaveUp++
						continue
					}
					booked++
					o.sel.Reservation.Release(reserve.Outcome{Kind: reserve.Cancelled})
				}
				t.Logf("%d booked, %d gave up", booked, gaveUp)
				if booked+gaveUp != 200 || booked == 0 || gaveUp == 0 {
					t.Errorf("%d booked and %d gave up; want 200 in all, some of both", booked, gaveUp)
				}
				if msg := w.leftOver(); msg != "" {
					t.Error(msg)
				}
				for i := range 200 { // every id is free again
					sel, err := w.Select(t.Context(), &core.Request{Kind: core.Book, SelectionID: fmt.Sprint(i), Partition: model("m1"), Pin: &core.Pin{Name: "w1"}})
					if err != nil {
						t.Fatalf("id %d: %v", i, err)
					}
					sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
				}
			})
		})
	}
}
