package affinity

import "time"

// Lease keeps a session's binding: while one is held the idle time does not run.
// Safe for concurrent use; a nil Lease is harmless in every method.
type Lease struct {
	table    *Table
	entry    *entry
	released bool   // guarded by the table's lock
	revision uint64 // of the binding that its owner has seen; guarded likewise
}

// Release ends the lease; further calls do nothing. It reports whether it was the
// last on its binding, so that the idle time has begun.
func (l *Lease) Release(now time.Time) bool {
	if l == nil {
		return false
	}
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	return l.table.release(l, now)
}

// Moved tells that target served what was booked on another worker: the binding
// follows, unless it has changed since it was committed or the lease has ended.
func (l *Lease) Moved(now time.Time, target Target) {
	if l == nil {
		return
	}
	t := l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.current() && l.entry.target != target {
		t.move(l.entry, target, t.next(now))
		l.revision = l.entry.revision
	}
}

// Event is what other routers are to hear of the session after a commit and after
// a release: its binding now. ok is false when it has none any more.
func (l *Lease) Event() (e Event, ok bool) {
	if l == nil {
		return Event{}, false
	}
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	if l.entry.dead {
		return Event{}, false
	}
	return Event{ID: l.entry.id, Worker: l.entry.target.Worker, Version: l.entry.version}, true
}

// counts tells whether the lease is one of its entry's.
func (l *Lease) counts() bool { return !l.released && !l.entry.dead }

// current tells whether the binding is the one that the lease's owner has seen.
func (l *Lease) current() bool { return l.counts() && l.revision == l.entry.revision }

// lease puts one more lease on a bound entry.
func (t *Table) lease(e *entry) *Lease {
	t.disarm(e)
	e.leases++
	t.leases++
	return &Lease{table: t, entry: e, revision: e.revision}
}

// release ends a lease; after the last one the idle time begins.
func (t *Table) release(l *Lease, now time.Time) (last bool) {
	counts := l.counts()
	l.released = true
	if !counts {
		return false
	}
	l.entry.leases--
	t.leases--
	if l.entry.leases > 0 {
		return false
	}
	t.arm(l.entry, now)
	return true
}
