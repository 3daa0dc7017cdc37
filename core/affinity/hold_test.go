package affinity_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/fleet"
)

// pass lets that much of a bubble's time go by.
func pass(d time.Duration) { <-time.After(d) }

// acquire takes the session as a request does: it waits for others that
// initialise it, as long as ctx allows.
func acquire(ctx context.Context, tab *affinity.Table, id string) (affinity.Hold, error) {
	for {
		h := tab.Take(id, time.Now())
		if h.State() != affinity.Waiting {
			return h, nil
		}
		select {
		case <-h.Changed():
		case <-ctx.Done():
			h.Abandon(time.Now())
			return h, ctx.Err()
		}
	}
}

func TestA2_SimultaneousFirstRequestsShareOneBinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(10)
		began := time.Now()
		var mu sync.Mutex
		served := map[fleet.WorkerID]int{}
		var longest time.Duration
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				h, _ := acquire(t.Context(), tab, "new")
				waited := time.Since(began)
				to := target(fleet.WorkerID(i + 1))
				if h.State() == affinity.Bound {
					to = h.Target()
				} else {
					pass(10 * time.Millisecond) // the first decision
				}
				l := h.Commit(to, time.Now())
				mu.Lock()
				served[to.Worker.ID]++
				longest = max(longest, waited)
				mu.Unlock()
				pass(time.Second)
				l.Release(time.Now())
			})
		}
		pass(500 * time.Millisecond)
		stats(t, tab, affinity.Stats{Bound: 1, Leases: 50})
		wg.Wait()
		stats(t, tab, affinity.Stats{Bound: 1})
		if len(served) != 1 || longest > 10*time.Millisecond {
			t.Errorf("served by %v, longest wait %s", served, longest)
		}
	})
}

func TestFiftyWaitersOfWhom25AreCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(10)
		first, _ := acquire(t.Context(), tab, "s")
		hasty, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		count := map[string]int{}
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			count[what]++
		}
		var wg sync.WaitGroup
		for i := range 50 {
			ctx := t.Context()
			if i%2 == 0 {
				ctx = hasty
			}
			wg.Go(func() {
				h, err := acquire(ctx, tab, "s")
				if err != nil {
					note("cancelled")
					return
				}
				note(h.State().String())
				to := h.Target()
				if h.State() == affinity.Initialising {
					to = target(1)
				}
				l := h.Commit(to, time.Now())
				pass(time.Second)
				l.Release(time.Now())
			})
		}
		synctest.Wait()
		stats(t, tab, affinity.Stats{Initialising: 1})
		cancel()
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"cancelled": 25}, count); diff != "" {
			t.Errorf("after the cancellation (-want +got):\n%s", diff)
		}
		first.Abandon(time.Now())
		synctest.Wait()
		stats(t, tab, affinity.Stats{Bound: 1, Leases: 25})
		wg.Wait()
		if diff := cmp.Diff(map[string]int{"cancelled": 25, "initialising": 1, "bound": 24}, count); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		stats(t, tab, affinity.Stats{Bound: 1})
		pass(ttl)
		tab.Reap(time.Now())
		stats(t, tab, affinity.Stats{Expired: 1})
	})
}

func TestHoldsThatEndAreUnpinned(t *testing.T) {
	tab := newTable(10)
	var none affinity.Hold
	none.Abandon(start)
	none.Rebind(start)
	l := book(t, tab, "s", 1, start)
	h := tab.Take("s", start)
	kept := h
	h.Commit(target(1), start).Release(start)
	// A second end, of a copy too, changes nothing.
	h.Abandon(start)
	kept.Abandon(start)
	if h.State() != affinity.Unpinned || h.Commit(target(2), start) != nil || h.Changed() != nil || none.Commit(target(1), start) != nil {
		t.Errorf("got %s", h.State())
	}
	stats(t, tab, affinity.Stats{Bound: 1, Leases: 1})
	h = tab.Take("s", start)
	stats(t, tab, affinity.Stats{Bound: 1, Leases: 2})
	h.Abandon(start)
	h.Abandon(start)
	l.Release(start)
	stats(t, tab, affinity.Stats{Bound: 1})
}

func TestACopyOfAnAbandonedInitializerTakesNothingFromTheNext(t *testing.T) {
	tab := newTable(10)
	h := tab.Take("s", start)
	kept := h
	h.Abandon(start)
	next := tab.Take("s", start)
	kept.Abandon(start)
	if late := tab.Take("s", start); next.State() != affinity.Initialising || late.State() != affinity.Waiting {
		t.Errorf("got %s, then %s", next.State(), late.State())
	}
	next.Commit(target(1), start).Release(start)
	stats(t, tab, affinity.Stats{Bound: 1})
}

func TestDropLeavesThoseThatAreInitialized(t *testing.T) {
	tab := newTable(10)
	h := tab.Take("zero", start) // any number may be a worker's id
	h.Commit(affinity.Target{}, start)
	tab.Take("s", start)
	if n := tab.Drop(func(affinity.Target) bool { return true }); n != 1 {
		t.Errorf("dropped %d; want 1", n)
	}
	stats(t, tab, affinity.Stats{Initialising: 1})
}

func TestNilLeasesAreHarmless(t *testing.T) {
	var l *affinity.Lease
	l.Moved(start, target(1))
	if _, ok := l.Event(); ok || l.Release(start) {
		t.Error("a nil lease is not harmless")
	}
}

func TestOnlyTheBindingThatWasSeenMoves(t *testing.T) {
	tab := newTable(10)
	l := book(t, tab, "s", 1, start)
	a, b := tab.Take("s", start), tab.Take("s", start)
	la := a.Commit(target(2), start)
	boundTo(t, tab, "s", 2, start)
	lb := b.Commit(target(3), start) // has seen worker 1
	boundTo(t, tab, "s", 2, start)
	l.Moved(start, target(4)) // likewise
	boundTo(t, tab, "s", 2, start)
	la.Moved(start, target(5))
	boundTo(t, tab, "s", 5, start)
	la.Moved(start, target(6))
	boundTo(t, tab, "s", 6, start)
	stats(t, tab, affinity.Stats{Bound: 1, Leases: 3})
	for _, l := range []*affinity.Lease{l, la, lb} {
		l.Release(start)
	}
	la.Moved(start, target(7))
	boundTo(t, tab, "s", 6, start)
	stats(t, tab, affinity.Stats{Bound: 1})
}

func TestRebindFindsWhatOthersMade(t *testing.T) {
	take := func(tab *affinity.Table) affinity.Hold { return tab.Take("s", start) }
	for name, c := range map[string]struct {
		meanwhile func(tab *affinity.Table)
		state     affinity.State
		worker    fleet.WorkerID
		leases    int
	}{
		"nothing": {func(*affinity.Table) {}, affinity.Initialising, 0, 0},
		"another initialises": {func(tab *affinity.Table) {
			h := take(tab)
			h.Rebind(start)
		}, affinity.Waiting, 0, 0},
		"another has bound it anew": {func(tab *affinity.Table) {
			h := take(tab)
			h.Rebind(start)
			h.Commit(target(2), start)
		}, affinity.Bound, 2, 2},
		"another has moved it": {func(tab *affinity.Table) {
			h := take(tab)
			h.Commit(target(2), start).Release(start)
		}, affinity.Bound, 2, 1},
		"it was dropped": {func(tab *affinity.Table) {
			tab.Drop(func(affinity.Target) bool { return true })
		}, affinity.Initialising, 0, 0},
		"it was dropped and the table has filled": {func(tab *affinity.Table) {
			tab.Drop(func(affinity.Target) bool { return true })
			tab.Take("other", start)
		}, affinity.Unpinned, 0, 0},
		"a replica has refreshed it": {func(tab *affinity.Table) {
			tab.Apply(event("s", 1, version(1)), 1, start)
		}, affinity.Initialising, 0, 0},
	} {
		tab := newTable(1)
		book(t, tab, "s", 1, start).Release(start)
		h := take(tab)
		c.meanwhile(tab)
		h.Rebind(start)
		if h.State() != c.state || h.Target().Worker.ID != c.worker || tab.Stats().Leases != c.leases {
			t.Errorf("%s: %s to %v, %d leases; want %s to worker %d, %d", name, h.State(), h.Target(), tab.Stats().Leases, c.state, c.worker, c.leases)
		}
		if (h.Changed() != nil) != (c.state == affinity.Waiting) {
			t.Errorf("%s: a channel to wait for: %v", name, h.Changed() != nil)
		}
		h.Abandon(start)
	}
}

func TestACommitWhoseBindingWasDroppedFromAFullTableIsUnpinned(t *testing.T) {
	tab := newTable(1)
	book(t, tab, "s", 1, start).Release(start)
	h := tab.Take("s", start)
	tab.Drop(func(affinity.Target) bool { return true })
	other := book(t, tab, "other", 2, start)
	if l := h.Commit(target(2), start); l != nil {
		t.Error("a live binding was pushed out")
	}
	boundTo(t, tab, "other", 2, start)
	other.Release(start)
	stats(t, tab, affinity.Stats{Bound: 1, Full: 1})
}

func TestDropAsksOnceATargetWithoutTheLock(t *testing.T) {
	tab := newTable(10)
	for i, id := range []string{"a", "b", "c", "d"} {
		book(t, tab, id, fleet.WorkerID(1+i%2), start)
	}
	asked := map[affinity.Target]int{}
	n := tab.Drop(func(x affinity.Target) bool {
		asked[x]++
		tab.Lookup("a", start) // would block
		return false
	})
	if diff := cmp.Diff(map[affinity.Target]int{target(1): 1, target(2): 1}, asked); diff != "" || n != 0 {
		t.Errorf("dropped %d, asked (-want +got):\n%s", n, diff)
	}
}
