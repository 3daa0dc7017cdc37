package affinity

import "time"

// State is what a hold has found.
type State uint8

// The states of a hold.
const (
	// Unpinned: there is no session, bindings are off or the table is full. The
	// request is decided as one without a session.
	Unpinned State = iota
	// Initialising: the session has no binding, and this caller decides for it.
	Initialising
	// Waiting: another caller decides. This one waits for Changed and takes again.
	Waiting
	// Bound: the session is bound to Target, and the hold has a lease on that.
	Bound
)

// String is the state's name.
func (s State) String() string {
	switch s {
	case Initialising:
		return "initialising"
	case Waiting:
		return "waiting"
	case Bound:
		return "bound"
	default:
		return "unpinned"
	}
}

// Hold is what a request has of its session until it has booked. It is owned by
// one goroutine and must end by Commit or Abandon, after which it is the zero
// Hold, which is unpinned.
type Hold struct {
	table   *Table // nil: unpinned
	entry   *entry
	state   State
	changed <-chan struct{}
	lease   *Lease // of Bound
	target  Target
	turn    uint64
}

// State is what the hold has found.
func (h *Hold) State() State { return h.state }

// Target is what the session of a Bound hold is bound to; of others the zero one.
func (h *Hold) Target() Target { return h.target }

// Turn is how many bookings the session has had before, in this table and since
// it was bound first.
func (h *Hold) Turn() uint64 { return h.turn }

// Changed is, of a Waiting hold, closed when the initialiser has bound the
// session or given up; take the session again then. Of others it is nil.
func (h *Hold) Changed() <-chan struct{} { return h.changed }

// Commit tells that the request was booked on target, and returns the lease that
// the booking has on the session's binding. It never waits. A session without a
// binding is bound to target, also when another hold is initialising it. The
// binding that this hold has seen moves to target. A binding that is newer stays,
// and the lease follows it. The lease is nil for an unpinned hold, and when the
// session's binding was dropped and the table has filled since.
func (h *Hold) Commit(target Target, now time.Time) *Lease {
	t := h.table
	if t == nil {
		return nil
	}
	seen := *h
	*h = Hold{}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.live(seen.entry.id, now)
	if e == nil {
		if e = t.insert(seen.entry.id, now); e == nil {
			t.full++
			return nil
		}
	}
	l := seen.lease
	switch {
	case !e.bound:
		t.bind(e, target, t.next(now))
	case l != nil && l.current() && e.target != target:
		t.move(e, target, t.next(now))
	}
	if l == nil || !l.counts() {
		l = t.lease(e)
	}
	l.revision = e.revision
	e.turns++
	return l
}

// Abandon gives the hold up without a booking: those who wait for this
// initialiser are woken, of whom the next to take initialises; the lease of a
// Bound one ends. Further calls do nothing.
func (h *Hold) Abandon(now time.Time) {
	t := h.table
	if t == nil {
		return
	}
	seen := *h
	*h = Hold{}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case seen.state == Bound:
		t.release(seen.lease, now)
	case seen.state == Initialising && !seen.entry.dead && !seen.entry.bound:
		t.remove(seen.entry)
	}
}

// Rebind is for a Bound hold whose target has gone or cannot be used. It drops
// the binding that the hold has seen and makes the hold the initialiser. Where
// the binding has changed meanwhile the hold becomes what Take would answer:
// Bound to the new target, Waiting, Initialising, or Unpinned when the table has
// filled. Holds in other states stay as they are.
func (h *Hold) Rebind(now time.Time) {
	if h.state != Bound {
		return
	}
	t, e, l := h.table, h.entry, h.lease
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !l.counts():
		*h = t.take(e.id, now)
	case !l.current():
		*h = t.holdOf(l)
	default:
		t.remove(e)
		*h = t.take(e.id, now)
		h.turn, h.entry.turns = e.turns, e.turns
	}
}
