package affinity

import (
	"strings"
	"sync"
	"time"

	"github.com/routerd/routerd/fleet"
)

// Target is what a session is bound to.
type Target struct {
	Worker fleet.Worker
	// Generation is that of the worker's record: one that was deleted and
	// registered anew is another worker.
	Generation uint64
}

// Table holds the sessions of one partition. Safe for concurrent use; nothing in
// it waits.
type Table struct {
	cfg Config

	mu       sync.Mutex // guards all below, all entries and all leases
	entries  map[string]*entry
	idle     deadlines
	sequence uint64 // the greatest seen, own or foreign
	bound    int
	leases   int
	full     uint64
	expired  uint64
}

// entry is a session in the table. One that left the table is dead and never
// comes back: who still points to it sees that by dead alone.
type entry struct {
	id      string
	dead    bool
	bound   bool          // else initialising
	changed chan struct{} // closed when the initialising has ended; nil until somebody waits
	turns   uint64        // bookings made

	// Of bound entries.
	target   Target
	revision uint64 // rises whenever the target changes
	version  Version
	leases   int
	deadline time.Time // end of the idle time while there are no leases
	at       int       // position in Table.idle; -1 for none
}

// Stats counts what is in a table and what has happened to it.
type Stats struct {
	// Bound counts bindings; those whose idle time has ended are among them until
	// somebody meets or reaps them. Initialising counts sessions whose first
	// request is being decided.
	Bound, Initialising int
	// Leases counts what keeps bindings: holds on bound sessions and bookings.
	Leases int
	// Full counts requests that were left unpinned because the table was full.
	Full uint64
	// Expired counts bindings that ended because nobody used them.
	Expired uint64
}

// New makes a table. cfg must pass Validate, but Entries 0 stands for MaxEntries.
// With TTL 0 the table binds nothing.
func New(cfg Config) *Table {
	if cfg.Entries == 0 {
		cfg.Entries = MaxEntries
	}
	return &Table{cfg: cfg, entries: map[string]*entry{}}
}

// Enabled tells whether sessions are bound at all.
func (t *Table) Enabled() bool { return t.cfg.TTL > 0 }

// Soft tells whether bindings are advice.
func (t *Table) Soft() bool { return t.cfg.Soft }

// Lookup is the binding of a session; ok is false where there is none, also
// while it is being made or when its idle time has ended. It changes nothing.
func (t *Table) Lookup(id string, now time.Time) (target Target, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil || !e.bound || e.over(now) {
		return Target{}, false
	}
	return e.target, true
}

// Check tells whether a booking on target, chosen earlier, agrees with the
// session: it is bound to target or not bound.
func (t *Table) Check(id string, target Target, now time.Time) bool {
	bound, ok := t.Lookup(id, now)
	return !ok || bound == target
}

// Take asks for the session of a request that will book. It never waits; see
// State for what the answers ask of the caller, who must end the hold by Commit
// or Abandon.
func (t *Table) Take(id string, now time.Time) Hold {
	if !t.Enabled() || id == "" || len(id) > MaxIDBytes {
		return Hold{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.take(id, now)
}

func (t *Table) take(id string, now time.Time) Hold {
	e := t.live(id, now)
	switch {
	case e == nil:
		if e = t.insert(id, now); e == nil {
			t.full++
			return Hold{}
		}
		return Hold{table: t, entry: e, state: Initialising}
	case !e.bound:
		if e.changed == nil {
			e.changed = make(chan struct{})
		}
		return Hold{table: t, entry: e, state: Waiting, changed: e.changed}
	}
	return t.holdOf(t.lease(e))
}

// holdOf is the hold of a bound session by way of a lease on it.
func (t *Table) holdOf(l *Lease) Hold {
	e := l.entry
	l.revision = e.revision
	return Hold{table: t, entry: e, state: Bound, lease: l, target: e.target, turn: e.turns}
}

// Stats counts what there is now.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Stats{
		Bound: t.bound, Initialising: len(t.entries) - t.bound, Leases: t.leases,
		Full: t.full, Expired: t.expired,
	}
}

// live is the session's entry, or nil. A binding whose idle time has ended leaves
// the table here.
func (t *Table) live(id string, now time.Time) *entry {
	e := t.entries[id]
	if e != nil && e.over(now) {
		t.expire(e)
		return nil
	}
	return e
}

// insert makes an initialising entry, or nil when the table is full of sessions
// of which none has ended.
func (t *Table) insert(id string, now time.Time) *entry {
	if len(t.entries) >= t.cfg.Entries {
		if len(t.idle) == 0 || !t.idle[0].over(now) {
			return nil
		}
		t.expire(t.idle[0])
	}
	// The id may be a part of a request's buffer.
	e := &entry{id: strings.Clone(id), at: -1}
	t.entries[e.id] = e
	return e
}

// bind turns an initialising entry into a bound one, which the caller gives a
// lease or a deadline.
func (t *Table) bind(e *entry, target Target, v Version) {
	e.bound, e.target, e.version = true, target, v
	t.bound++
	e.wake()
}

// move binds a bound entry to another target.
func (t *Table) move(e *entry, target Target, v Version) {
	e.target, e.version = target, v
	e.revision++
}

// remove takes an entry out of the table, and with it its leases.
func (t *Table) remove(e *entry) {
	delete(t.entries, e.id)
	e.dead = true
	if e.bound {
		t.bound--
		t.leases -= e.leases
		t.disarm(e)
	}
	e.wake()
}

// wake tells those who wait that the initialising has ended.
func (e *entry) wake() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}
