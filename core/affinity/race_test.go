package affinity_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/fleet"
)

// clock is a time that many goroutines push on.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time      { return after(time.Duration(c.ns.Load())) }
func (c *clock) add(d time.Duration) { c.ns.Add(int64(d)) }

// watch judges what goroutines see of one session at the same time.
type watch struct {
	deciding atomic.Int32 // at most one
	holders  atomic.Int32
}

// request is one request of a session as the core makes it, in hard mode.
func (w *watch) request(t *testing.T, tab *affinity.Table, id string, c *clock, rng *rand.Rand) {
	h := tab.Take(id, c.now())
	for h.State() == affinity.Waiting {
		<-h.Changed()
		h = tab.Take(id, c.now())
	}
	to := h.Target()
	switch h.State() {
	case affinity.Unpinned:
		return
	case affinity.Initialising:
		if w.holders.Load() != 0 {
			t.Error("initialised a session that others hold")
		}
		if w.deciding.Add(1) != 1 {
			t.Error("two decide for a session")
		}
		to = target(fleet.WorkerID(1 + rng.IntN(9)))
		w.deciding.Add(-1)
	}
	if rng.IntN(4) == 0 {
		h.Abandon(c.now())
		return
	}
	l := h.Commit(to, c.now())
	w.holders.Add(1)
	for range rng.IntN(3) {
		if got, ok := tab.Lookup(id, c.now()); !ok || got != to {
			t.Errorf("held on %v, bound to %v, %v", to, got, ok)
		}
		c.add(ttl / 4)
	}
	w.holders.Add(-1)
	var wg sync.WaitGroup
	for range 1 + rng.IntN(2) {
		wg.Go(func() { l.Release(c.now()) })
	}
	wg.Wait()
}

// TestBindingsHoldUnderManyCallers runs requests from many goroutines over more
// sessions than the table has room for. While a lease is held its binding stays.
func TestBindingsHoldUnderManyCallers(t *testing.T) {
	tab := newTable(6)
	watches := make([]watch, 8)
	var c clock
	var wg sync.WaitGroup
	for g := range uint64(16) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 1))
			for range 1000 {
				i := rng.IntN(len(watches))
				watches[i].request(t, tab, name(i), &c, rng)
				if rng.IntN(50) == 0 {
					tab.Reap(c.now())
				}
				if st := tab.Stats(); st.Leases < 0 || st.Bound < 0 || st.Initialising < 0 || st.Bound+st.Initialising > 6 {
					t.Errorf("%+v", st)
				}
			}
		})
	}
	wg.Wait()
	full := tab.Stats().Full
	tab.Reap(c.now().Add(ttl))
	if st := tab.Stats(); st.Bound != 0 || st.Leases != 0 || st.Initialising != 0 || full == 0 || st.Expired == 0 {
		t.Errorf("at the end %+v", st)
	}
}

// TestNothingLeaksWhateverHappens adds what ends and moves bindings under their
// holders.
func TestNothingLeaksWhateverHappens(t *testing.T) {
	tab := newTable(5)
	var c clock
	var wg sync.WaitGroup
	for g := range uint64(16) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 2))
			for range 1000 {
				anything(tab, &c, rng)
				if st := tab.Stats(); st.Leases < 0 || st.Bound < 0 || st.Initialising < 0 || st.Bound+st.Initialising > 5 {
					t.Errorf("%+v", st)
				}
			}
		})
	}
	wg.Wait()
	if st := tab.Stats(); st.Leases != 0 || st.Initialising != 0 {
		t.Errorf("at the end %+v", st)
	}
	tab.Reap(c.now().Add(ttl))
	stats(t, tab, affinity.Stats{Full: tab.Stats().Full, Expired: tab.Stats().Expired})
}

func anything(tab *affinity.Table, c *clock, rng *rand.Rand) {
	id, to := name(rng.IntN(7)), target(fleet.WorkerID(1+rng.IntN(3)))
	switch rng.IntN(20) {
	case 0:
		tab.Drop(func(x affinity.Target) bool { return x == to })
	case 1:
		tab.Reap(c.now())
	case 2, 3:
		tab.Apply(event(id, to.Worker.ID, version(int(c.ns.Load())+rng.IntN(1000))), 1, c.now())
	case 4:
		c.add(ttl / 3)
	default:
		h := tab.Take(id, c.now())
		for range rng.IntN(3) {
			h.Rebind(c.now())
		}
		if h.State() == affinity.Waiting && rng.IntN(2) == 0 {
			<-h.Changed()
		}
		if rng.IntN(3) == 0 {
			h.Abandon(c.now())
			return
		}
		l := h.Commit(to, c.now())
		if rng.IntN(3) == 0 {
			l.Moved(c.now(), target(2))
		}
		l.Event()
		l.Release(c.now())
	}
}
