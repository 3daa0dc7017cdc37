package affinity_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/fleet"
)

// version is one of another router, that many nanoseconds from the start.
func version(n int) affinity.Version {
	return affinity.Version{Sequence: uint64(start.UnixNano() + int64(n)), Writer: 9}
}

func event(id string, worker fleet.WorkerID, v affinity.Version) affinity.Event {
	return affinity.Event{ID: id, Worker: fleet.Worker{ID: worker}, Version: v}
}

func published(t *testing.T, l *affinity.Lease) affinity.Event {
	t.Helper()
	e, ok := l.Event()
	if !ok {
		t.Fatal("no event of a lease")
	}
	return e
}

func TestOutcomesOfEvents(t *testing.T) {
	const id = "s"
	bound := func(tab *affinity.Table) { // to worker 1, at the start
		h := tab.Take(id, start)
		h.Commit(target(1), start)
	}
	idle := func(tab *affinity.Table) {
		h := tab.Take(id, start)
		h.Commit(target(1), start).Release(start)
	}
	mine := affinity.Version{Sequence: uint64(start.UnixNano()), Writer: 7}
	lesser := affinity.Version{Sequence: mine.Sequence, Writer: 6}
	greater := affinity.Version{Sequence: mine.Sequence, Writer: 8}
	for name, c := range map[string]struct {
		before func(*affinity.Table)
		ev     affinity.Event
		at     time.Time
		want   affinity.Outcome
		worker fleet.WorkerID
	}{
		"new":                     {nil, event(id, 2, version(1)), start, affinity.Inserted, 2},
		"same, newer":             {bound, event(id, 1, version(1)), start, affinity.Refreshed, 1},
		"same, older":             {bound, event(id, 1, version(-1)), start, affinity.Refreshed, 1},
		"newer, leased":           {bound, event(id, 2, version(1)), start, affinity.ReplacedNewer, 2},
		"newer, idle":             {idle, event(id, 2, version(1)), start, affinity.ReplacedNewer, 2},
		"older":                   {bound, event(id, 2, version(-1)), start, affinity.IgnoredConflict, 1},
		"older, expired":          {idle, event(id, 2, version(-1)), after(ttl), affinity.ReplacedExpired, 2},
		"same, expired":           {idle, event(id, 1, version(-1)), after(ttl), affinity.ReplacedExpired, 1},
		"equal sequence, lesser":  {bound, event(id, 2, lesser), start, affinity.IgnoredConflict, 1},
		"equal sequence, greater": {bound, event(id, 2, greater), start, affinity.ReplacedNewer, 2},
		"initialising":            {func(tab *affinity.Table) { tab.Take(id, start) }, event(id, 2, version(1)), start, affinity.IgnoredInitializing, 0},
		"own":                     {nil, event(id, 2, mine), start, affinity.IgnoredOwn, 0},
		"empty id":                {nil, event("", 2, version(1)), start, affinity.RejectedSessionID, 0},
		"long id":                 {nil, event(strings.Repeat("x", 257), 2, version(1)), start, affinity.RejectedSessionID, 0},
		"no sequence":             {nil, event(id, 2, affinity.Version{Writer: 9}), start, affinity.RejectedVersion, 0},
		"greatest sequence":       {nil, event(id, 2, affinity.Version{Sequence: math.MaxUint64, Writer: 9}), start, affinity.RejectedVersion, 0},
		"a day ahead":             {nil, event(id, 2, version(24*3600*1e9)), start, affinity.Inserted, 2},
		"more than a day ahead":   {nil, event(id, 2, version(24*3600*1e9+1)), start, affinity.RejectedVersion, 0},
		"full":                    {func(tab *affinity.Table) { tab.Take("other", start) }, event(id, 2, version(1)), start, affinity.RejectedCapacity, 0},
		"full of what has ended":  {func(tab *affinity.Table) { bound(tab); tab.Drop(func(affinity.Target) bool { return true }) }, event(id, 2, version(1)), start, affinity.Inserted, 2},
		"clock before 1970":       {nil, event(id, 2, affinity.Version{Sequence: 1, Writer: 9}), time.Unix(-1e9, 0), affinity.RejectedVersion, 0},
	} {
		tab := newTable(1)
		if c.before != nil {
			c.before(tab)
		}
		if got := tab.Apply(c.ev, 1, c.at); got != c.want {
			t.Errorf("%s: got %s; want %s", name, got, c.want)
		}
		boundTo(t, tab, id, c.worker, c.at)
	}
}

func TestReplicatedBindingSteersANewSession(t *testing.T) {
	a, b := newTable(10), affinity.New(affinity.Config{TTL: ttl, Entries: 10, Writer: 8})
	ev := published(t, book(t, a, "s", 1, start))
	if got := b.Apply(ev, 5, start); got != affinity.Inserted {
		t.Fatalf("got %s", got)
	}
	h := b.Take("s", start)
	want := affinity.Target{Worker: fleet.Worker{ID: 1}, Generation: 5}
	if h.State() != affinity.Bound || h.Target() != want {
		t.Fatalf("got %s to %v", h.State(), h.Target())
	}
	l := h.Commit(h.Target(), start)
	// The same binding is the same version, whoever books on it.
	if diff := cmp.Diff(ev, published(t, l)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	l.Release(start)
	if got := a.Apply(published(t, l), 1, start); got != affinity.IgnoredOwn {
		t.Errorf("got %s", got)
	}
}

func TestEventsBeginTheIdleTimeAnew(t *testing.T) {
	tab := newTable(10)
	ev := event("s", 1, version(0))
	tab.Apply(ev, 1, start)
	for i := range 3 { // delivered twice, or told again: counts as once
		now := after(time.Duration(i) * ttl / 2)
		if got := tab.Apply(ev, 1, now); got != affinity.Refreshed {
			t.Errorf("got %s", got)
		}
	}
	tab.Apply(ev, 1, start) // a late one makes it no shorter
	boundTo(t, tab, "s", 1, after(2*ttl-1))
	boundTo(t, tab, "s", 0, after(2*ttl))
	l := book(t, tab, "s", 1, after(2*ttl))
	tab.Apply(event("s", 2, version(int(5*ttl))), 1, after(2*ttl))
	boundTo(t, tab, "s", 2, after(9*ttl)) // the lease keeps the newer binding
	l.Release(after(9 * ttl))
	boundTo(t, tab, "s", 0, after(10*ttl))
	tab.Reap(after(10 * ttl))
	if _, ok := l.Event(); ok {
		t.Error("an event of what has ended")
	}
}

// Two routers bind the same session at once; either may hear of the other while
// it decides.
func TestY3_RoutersThatBindAtOnceAgree(t *testing.T) {
	for round := range 100 {
		a := affinity.New(affinity.Config{TTL: ttl, Entries: 10, Writer: 1})
		b := affinity.New(affinity.Config{TTL: ttl, Entries: 10, Writer: 2})
		ha, hb := a.Take("x", start), b.Take("x", start)
		skew := time.Duration(round%5-2) * time.Minute
		la := ha.Commit(target(1), after(skew))
		if round%2 == 0 { // b hears of it before it has decided
			if got := b.Apply(published(t, la), 1, start); got != affinity.IgnoredInitializing {
				t.Fatalf("got %s", got)
			}
		}
		lb := hb.Commit(target(2), start)
		ea, eb := published(t, la), published(t, lb)
		b.Apply(ea, 1, start)
		a.Apply(eb, 1, start)
		ta, _ := a.Lookup("x", start)
		tb, _ := b.Lookup("x", start)
		if ta != tb || ta == (affinity.Target{}) || round%2 == 0 && ta != target(2) {
			t.Fatalf("round %d, skew %s: %v and %v", round, skew, ta, tb)
		}
		if cmp.Diff(published(t, la), published(t, lb)) != "" {
			t.Fatalf("round %d: versions differ", round)
		}
		la.Release(start)
		lb.Release(start)
		stats(t, a, affinity.Stats{Bound: 1})
	}
}

func TestOwnVersionsArePastEveryOneSeen(t *testing.T) {
	tab := newTable(10)
	last := affinity.Version{}
	newer := func(l *affinity.Lease) {
		t.Helper()
		v := published(t, l).Version
		if v.Compare(last) <= 0 || v.Writer != 7 {
			t.Errorf("%v is not newer than %v", v, last)
		}
		last = v
	}
	newer(book(t, tab, "a", 1, start))
	newer(book(t, tab, "b", 1, start))
	newer(book(t, tab, "c", 1, after(-time.Hour))) // the clock went back
	newer(book(t, tab, "d", 1, time.Unix(-5, 0)))
	h := tab.Take("e", start)
	for i, ev := range []affinity.Event{event("x", 1, version(1e9)), event("e", 1, version(2e9)), event("a", 2, version(3e9))} {
		tab.Apply(ev, 1, start)
		last = ev.Version
		newer(book(t, tab, string(rune('n'+i)), 1, start))
	}
	newer(h.Commit(target(1), start))
	if got := last.Sequence; got < version(3e9).Sequence {
		t.Errorf("got sequence %d", got)
	}
}
