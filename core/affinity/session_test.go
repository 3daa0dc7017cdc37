package affinity_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/fleet"
)

// ttl is that of all tables here, but where a test says otherwise.
const ttl = time.Second

var start = time.Unix(1_700_000_000, 0)

func after(d time.Duration) time.Time { return start.Add(d) }

func target(worker fleet.WorkerID) affinity.Target {
	return affinity.Target{Worker: fleet.Worker{ID: worker}, Generation: 1}
}

func newTable(entries int) *affinity.Table {
	return affinity.New(affinity.Config{TTL: ttl, Entries: entries, Writer: 7})
}

// book takes a session that nobody initialises and commits to the binding, or to
// worker where there is none.
func book(t *testing.T, tab *affinity.Table, id string, worker fleet.WorkerID, now time.Time) *affinity.Lease {
	t.Helper()
	h := tab.Take(id, now)
	to := target(worker)
	switch h.State() {
	case affinity.Waiting:
		t.Fatalf("session %q is being initialised", id)
	case affinity.Bound:
		to = h.Target()
	}
	return h.Commit(to, now)
}

// boundTo fails unless the session is bound to the worker; 0 for none.
func boundTo(t *testing.T, tab *affinity.Table, id string, worker fleet.WorkerID, now time.Time) {
	t.Helper()
	got, ok := tab.Lookup(id, now)
	if ok != (worker != 0) || ok && got.Worker.ID != worker {
		t.Errorf("%s: session %q is bound to %v, %v; want worker %d", now.Sub(start), id, got, ok, worker)
	}
}

func stats(t *testing.T, tab *affinity.Table, want affinity.Stats) {
	t.Helper()
	if diff := cmp.Diff(want, tab.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

func TestA1_PartitionSessionsKeepIndependentBindings(t *testing.T) {
	m1, m2 := newTable(10), newTable(10)
	book(t, m1, "s1", 1, start).Release(start)
	l := book(t, m2, "s1", 3, start)
	boundTo(t, m1, "s1", 1, start)
	boundTo(t, m2, "s1", 3, start)
	m1.Reap(after(ttl))
	boundTo(t, m1, "s1", 0, after(ttl))
	boundTo(t, m2, "s1", 3, after(ttl))
	l.Release(after(ttl))
	stats(t, m1, affinity.Stats{Expired: 1})
	stats(t, m2, affinity.Stats{Bound: 1})
}

func TestA3_DepartedSessionWorkerReinitializesTheSession(t *testing.T) {
	tab := newTable(10)
	old := book(t, tab, "s", 1, start)
	// The record has gone, and a request takes the session before the table hears of it.
	h := tab.Take("s", start)
	if h.State() != affinity.Bound || h.Target() != target(1) || h.Turn() != 1 {
		t.Fatalf("got %s, %v, turn %d", h.State(), h.Target(), h.Turn())
	}
	h.Rebind(start)
	if h.State() != affinity.Initialising || h.Target() != (affinity.Target{}) || h.Turn() != 1 {
		t.Fatalf("got %s, %v, turn %d", h.State(), h.Target(), h.Turn())
	}
	if n := tab.Drop(func(x affinity.Target) bool { return x.Worker.ID == 1 }); n != 0 {
		t.Errorf("dropped %d", n)
	}
	l := h.Commit(target(2), start)
	for want := uint64(2); want < 4; want++ {
		h := tab.Take("s", start)
		if h.State() != affinity.Bound || h.Target() != target(2) || h.Turn() != want {
			t.Fatalf("got %s, %v, turn %d", h.State(), h.Target(), h.Turn())
		}
		h.Commit(h.Target(), start).Release(start)
	}
	// The dropped binding's lease changes nothing of the new one.
	if old.Release(start) {
		t.Error("the lease of a dropped binding began an idle time")
	}
	stats(t, tab, affinity.Stats{Bound: 1, Leases: 1})
	if !l.Release(start) || l.Release(start) {
		t.Error("want the last release once")
	}
	stats(t, tab, affinity.Stats{Bound: 1})
}

func TestDropMakesLeasesHarmless(t *testing.T) {
	tab := newTable(10)
	l1, l2 := book(t, tab, "a", 1, start), book(t, tab, "b", 2, start)
	book(t, tab, "c", 1, start).Release(start)
	first := tab.Take("d", start)
	held := tab.Take("a", start)
	if n := tab.Drop(func(x affinity.Target) bool { return x == target(1) }); n != 2 {
		t.Errorf("dropped %d; want 2", n)
	}
	stats(t, tab, affinity.Stats{Bound: 1, Initialising: 1, Leases: 1})
	if _, ok := l1.Event(); ok || l1.Release(start) {
		t.Error("the lease of a dropped binding is not harmless")
	}
	l1.Moved(start, target(2))
	boundTo(t, tab, "a", 0, start)
	// A request that had seen the binding binds the session anew.
	l := held.Commit(target(2), start)
	boundTo(t, tab, "a", 2, start)
	first.Abandon(start)
	for _, l := range []*affinity.Lease{l, l1, l2} {
		l.Release(start)
	}
	stats(t, tab, affinity.Stats{Bound: 2})
}

func TestA4_ARefusedDispatchMovesTheBinding(t *testing.T) {
	tab := newTable(10)
	first := book(t, tab, "s", 1, start) // w1 refuses the connection
	h := tab.Take("s", start)            // the second attempt is booked elsewhere
	second := h.Commit(target(2), start)
	first.Release(start)
	boundTo(t, tab, "s", 2, start)
	stats(t, tab, affinity.Stats{Bound: 1, Leases: 1})
	second.Release(start)
	boundTo(t, tab, "s", 2, after(ttl-1))
}

func TestA5_ALeaseKeepsABindingAndTheIdleTimeRunsAfter(t *testing.T) {
	tab := newTable(10)
	stream := book(t, tab, "s", 1, start) // 3 s long
	tab.Reap(after(2500 * time.Millisecond))
	second := book(t, tab, "s", 2, after(2500*time.Millisecond))
	boundTo(t, tab, "s", 1, after(2500*time.Millisecond))
	stream.Release(after(3 * time.Second))
	tab.Reap(after(4 * time.Second))
	boundTo(t, tab, "s", 1, after(4*time.Second))
	if !second.Release(after(4 * time.Second)) {
		t.Error("the last release did not begin the idle time")
	}
	boundTo(t, tab, "s", 1, after(5*time.Second-1))
	boundTo(t, tab, "s", 0, after(5*time.Second))
	stats(t, tab, affinity.Stats{Bound: 1})
	h := tab.Take("s", after(5500*time.Millisecond))
	if h.State() != affinity.Initialising || h.Turn() != 0 {
		t.Errorf("got %s, turn %d", h.State(), h.Turn())
	}
	h.Abandon(start)
	stats(t, tab, affinity.Stats{Expired: 1})
}

// full_affinity_table_routes_without_pinning
func TestA6_AFullTableRoutesWithoutPinning(t *testing.T) {
	tab := newTable(1000)
	leases := make([]*affinity.Lease, 1000)
	for i := range leases {
		leases[i] = book(t, tab, fmt.Sprint(i), 1, start)
	}
	h := tab.Take("1001", start)
	if h.State() != affinity.Unpinned || h.Commit(target(2), start) != nil {
		t.Errorf("got %s; want unpinned", h.State())
	}
	leases[500].Release(start)
	h = tab.Take("1001", after(ttl-1))
	if h.State() != affinity.Unpinned {
		t.Errorf("got %s; an idle binding lives until its end", h.State())
	}
	stats(t, tab, affinity.Stats{Bound: 1000, Leases: 999, Full: 2})
	if l := book(t, tab, "1001", 2, after(ttl)); l == nil {
		t.Error("an expired binding made no room")
	}
	boundTo(t, tab, "1001", 2, after(ttl))
	for i := range leases {
		want := fleet.WorkerID(1)
		if i == 500 {
			want = 0
		}
		boundTo(t, tab, fmt.Sprint(i), want, after(ttl))
	}
	stats(t, tab, affinity.Stats{Bound: 1000, Leases: 1000, Full: 2, Expired: 1})
}

// The first session in the request is the one that is taken; the other has no
// entry of its own.
func TestA7_OnlyTheSessionThatIsTakenIsBound(t *testing.T) {
	tab := newTable(10)
	book(t, tab, "sA", 1, start)
	boundTo(t, tab, "sA", 1, start)
	boundTo(t, tab, "sB", 0, start)
	stats(t, tab, affinity.Stats{Bound: 1, Leases: 1})
}

func TestFailoverCommitBehindAnInitializingHoldKeepsALease(t *testing.T) {
	tab := newTable(10)
	first, second := tab.Take("s", start), tab.Take("s", start)
	woken := second.Changed()
	if first.State() != affinity.Initialising || second.State() != affinity.Waiting {
		t.Fatalf("got %s and %s", first.State(), second.State())
	}
	l2 := second.Commit(target(2), start)
	select {
	case <-woken:
	default:
		t.Error("those who wait were not woken")
	}
	stats(t, tab, affinity.Stats{Bound: 1, Leases: 1})
	l1 := first.Commit(target(1), start) // follows the newer binding
	boundTo(t, tab, "s", 2, start)
	stats(t, tab, affinity.Stats{Bound: 1, Leases: 2})
	l1.Moved(start, target(2))
	if l2.Release(start) || !l1.Release(start) {
		t.Error("the idle time begins after the last lease only")
	}
	stats(t, tab, affinity.Stats{Bound: 1})
}

func TestAnInitializerWhoseWorkWasDoneAbandonsNothing(t *testing.T) {
	tab := newTable(10)
	first, second := tab.Take("s", start), tab.Take("s", start)
	l := second.Commit(target(2), start)
	first.Abandon(start)
	first.Abandon(start)
	boundTo(t, tab, "s", 2, start)
	l.Release(start)
	stats(t, tab, affinity.Stats{Bound: 1})
}

func TestTwoPhaseReplayRejectsAWorkerTheSessionLeft(t *testing.T) {
	tab := newTable(10)
	if !tab.Check("s", target(1), start) || !tab.Check("", target(1), start) {
		t.Error("an unbound session agrees with every worker")
	}
	h := tab.Take("s", start)
	if !tab.Check("s", target(1), start) {
		t.Error("one that is initialised agrees too")
	}
	h.Commit(target(1), start).Release(start)
	again := affinity.Target{Worker: fleet.Worker{ID: 1}, Generation: 2}
	rank := affinity.Target{Worker: fleet.Worker{ID: 1, Rank: 1}, Generation: 1}
	got := []bool{tab.Check("s", target(1), start), tab.Check("s", target(2), start), tab.Check("s", again, start), tab.Check("s", rank, start), tab.Check("s", target(2), after(ttl))}
	if diff := cmp.Diff([]bool{true, false, false, false, true}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestR5_ExpiredBookingReleasesAffinityLease(t *testing.T) {
	tab := newTable(10)
	leases := make([]*affinity.Lease, 10)
	for i := range leases {
		leases[i] = book(t, tab, fmt.Sprint(i), 1, start)
	}
	if n := tab.Reap(after(time.Hour)); n != 0 {
		t.Errorf("%d leased bindings reaped", n)
	}
	for _, l := range leases { // the partition's sweep at 2 s
		l.Release(after(2 * time.Second))
		l.Release(after(2 * time.Second))
	}
	stats(t, tab, affinity.Stats{Bound: 10})
	if n := tab.Reap(after(2*time.Second + ttl)); n != 10 {
		t.Errorf("reaped %d; want 10", n)
	}
	stats(t, tab, affinity.Stats{Expired: 10})
}

func TestALookupRefreshesNothing(t *testing.T) {
	tab := newTable(10)
	book(t, tab, "s", 1, start).Release(start)
	boundTo(t, tab, "s", 1, after(ttl-1))
	tab.Check("s", target(1), after(ttl-1))
	boundTo(t, tab, "s", 0, after(ttl))
	if n := tab.Reap(after(ttl - 1)); n != 0 {
		t.Errorf("reaped %d before the end", n)
	}
	if n := tab.Reap(after(ttl)); n != 1 {
		t.Errorf("reaped %d; want 1", n)
	}
}

func TestReapRemovesAllHoweverMany(t *testing.T) {
	tab := newTable(5000)
	for i := range 5000 {
		book(t, tab, fmt.Sprint(i), 1, start).Release(after(time.Duration(i%7) * time.Millisecond))
	}
	if n := tab.Reap(after(ttl + 3*time.Millisecond)); n != 2858 {
		t.Errorf("reaped %d; want 2858", n)
	}
	if n := tab.Reap(after(time.Hour)); n != 2142 {
		t.Errorf("reaped %d; want 2142", n)
	}
}
