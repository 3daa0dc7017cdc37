package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// Eight goroutines do everything at once, for the race detector; at the end
// nothing is left.
func TestR8_EverythingAtOnceLeavesNothing(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) {
		c.Queue.Classes[0].Busy, c.Queue.Classes[0].Timeout = queue.Busy{ActiveRequests: 3}, 2*time.Millisecond
	})
	w.join(t, workers("m1", 4)...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 8))
			for i := range togetherSteps {
				if err := together(ctx, w, rng, fmt.Sprintf("%d-%d", g, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	w.remove(t, "w1", "w2", "w3", "w4") // what is held goes with them
	w.join(t, workers("m1", 4)...)
	w.Tick(time.Now().Add(time.Hour))
	st := w.Stats()
	if w.active() != 0 || st.Reservations != 0 || st.Pending != 0 || w.Granted(model("m1")) != 0 {
		t.Errorf("left over: %d bookings, %+v", w.active(), st)
	}
	for _, p := range st.Partitions {
		if p.Sessions.Bound != 0 || p.Sessions.Initialising != 0 || p.Sessions.Leases != 0 || p.Queue[0].Requests != 0 {
			t.Errorf("left over: %+v", p)
		}
	}
}

// together does one thing. Only what no order of things can explain is an error.
func together(ctx context.Context, w *world, rng *rand.Rand, id string) error {
	name := fmt.Sprintf("w%d", rng.IntN(4)+1)
	worker := fleet.IDFromName(name)
	switch rng.IntN(12) {
	case 0:
		return w.Commit(core.Change{Removals: []fleet.WorkerID{worker}})
	case 1, 2:
		rec := record(name, "m1")
		rec.DPSize, rec.Labels = rng.IntN(2)+1, map[string]string{"l": id}
		return w.Commit(core.Change{Upserts: []core.Member{{Record: rec, Lifecycle: core.Ready}}})
	case 3:
		w.Inhibit(worker)
		w.Refused(worker, time.Millisecond)
	case 4:
		w.Reached(worker)
		w.Tick(time.Now())
	default:
		waits, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(3000))*time.Microsecond)
		defer cancel()
		req := bookRequest(id, prompt(byte(rng.IntN(3)), 40))
		req.Session = []string{"", "", "s1", "s2", "s3"}[rng.IntN(5)]
		req.Kind = []core.Kind{core.Book, core.Book, core.Book, core.Query, core.Advisory}[rng.IntN(5)]
		sel, err := w.Select(waits, req)
		if err != nil {
			return nil
		}
		if req.Kind == core.Query {
			if sel, err = w.Reserve(ctx, &core.Booking{SelectionID: id, Partition: model("m1")}); err != nil {
				return nil
			}
		}
		if sel.Reservation == nil {
			return nil
		}
		sel.Reservation.FirstToken(time.Now())
		sel.Reservation.OutputBlocks(1)
		if rng.IntN(4) > 0 && !sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed}) && sel.Reservation.Released() {
			return nil // its worker was faster
		}
	}
	return nil
}
