package core_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// inhibited are the names of the workers that are left out.
func (w *world) inhibited() map[string]bool {
	out := map[string]bool{}
	for _, p := range w.Partitions() {
		for _, r := range p.Ranks {
			if strings.Contains(strings.Join(r.Reasons, " "), "inhibited") {
				out[r.Name] = true
			}
		}
	}
	return out
}

func TestInhibitionDoublesUpToThirtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, use("builtin:kv-aware"), nil)
		w.join(t, workers("m1", 2)...)
		id := fleet.IDFromName("w1")
		length := func() time.Duration {
			begun := time.Now()
			w.Inhibit(id)
			for w.inhibited()["w1"] {
				<-time.After(100 * time.Millisecond)
			}
			return time.Since(begun)
		}
		var got []int
		for range 7 {
			got = append(got, int(length().Seconds()))
		}
		<-time.After(4 * time.Minute)
		got = append(got, int(length().Seconds()))
		<-time.After(6 * time.Minute)
		w.Inhibit(fleet.IDFromName("w2")) // what has long ended is swept then
		got = append(got, int(length().Seconds()))
		w.Reached(id)
		got = append(got, int(length().Seconds()))
		if diff := cmp.Diff([]int{1, 2, 4, 8, 16, 30, 30, 30, 1, 1}, got); diff != "" {
			t.Errorf("seconds (-want +got):\n%s", diff)
		}
	})
}

// A decision that is made void sees at its next attempt who cannot be reached.
func TestInhibitionIsSeenByTheNextAttemptOfADecisionUnderWay(t *testing.T) {
	w := rivals(t, 32, func(w *world, call int) {
		if call > 1 {
			return
		}
		// w1, which the policy prefers, is booked and found dead meanwhile.
		if _, err := w.Select(t.Context(), bookRequest("rival", prompt('B', 64))); err != nil {
			t.Error(err)
		}
		w.Inhibit(fleet.IDFromName("w1"))
	})
	sel, err := w.Select(t.Context(), bookRequest("mine", prompt('A', 32)))
	if err != nil {
		t.Fatal(err)
	}
	last := w.heard.decided[len(w.heard.decided)-1]
	if sel.Name != "w2" || last.Conflicts != 1 || last.Candidates != 1 {
		t.Errorf("got %s after %d conflicts among %d; want w2, 1, 1", sel.Name, last.Conflicts, last.Candidates)
	}
	w.Reached(fleet.IDFromName("w1"))
	if sel, err = w.Select(t.Context(), bookRequest("next", prompt('A', 48))); err != nil || sel.Name != "w1" {
		t.Errorf("got %v, %v; want w1 again", sel, err)
	}
}

// A policy sees the cells of the candidates that are left, in their order.
func TestInhibitedWorkersAreNotInTheTable(t *testing.T) {
	var seen []fleet.WorkerID
	s := &stage{score: func(_ context.Context, tb *policy.Table, _ []float64) error {
		seen = nil
		for _, r := range tb.Rows {
			seen = append(seen, r.ID)
		}
		return nil
	}}
	w := newWorld(t, use("module:m"), stages{s})
	w.join(t, workers("m1", 3)...)
	if _, err := w.Select(t.Context(), bookRequest("r1", nil)); err != nil {
		t.Fatal(err)
	}
	all := seen
	w.Inhibit(all[1])
	if _, err := w.Select(t.Context(), bookRequest("r2", nil)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]fleet.WorkerID{all[0], all[2]}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInhibitionsAndRecordsRace(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, workers("m1", 3)...)
	var wg sync.WaitGroup
	for _, f := range []func(i int){
		func(int) { w.Inhibit(fleet.IDFromName("w1")) },
		func(int) { w.Reached(fleet.IDFromName("w1")) },
		func(i int) {
			if i%20 == 0 {
				w.remove(t, "w1")
				w.join(t, record("w1", "m1"))
			}
		},
		func(int) {
			if _, err := w.Select(t.Context(), &core.Request{Partition: model("m1")}); err != nil {
				t.Error(err)
			}
		},
	} {
		wg.Go(func() {
			for i := range 500 {
				f(i)
			}
		})
	}
	wg.Wait()
	w.Inhibit(fleet.IDFromName("w1"))
	w.remove(t, "w1")
	w.join(t, record("w1", "m1"))
	if got := w.inhibited(); len(got) != 0 {
		t.Errorf("%v inhibited; want a new record to start clean", got)
	}
}
