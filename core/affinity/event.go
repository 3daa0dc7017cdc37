package affinity

import (
	"cmp"
	"time"

	"github.com/routerd/routerd/fleet"
)

// Version orders the bindings of a session over all routers: the greater
// sequence, then the greater writer, is the newer.
type Version struct {
	Sequence uint64
	Writer   uint64
}

// Compare is negative when v is older than o.
func (v Version) Compare(o Version) int {
	if c := cmp.Compare(v.Sequence, o.Sequence); c != 0 {
		return c
	}
	return cmp.Compare(v.Writer, o.Writer)
}

// Event tells other routers of a session's binding. The same event again tells
// that the idle time has begun anew.
type Event struct {
	ID      string
	Worker  fleet.Worker
	Version Version
}

// maxAhead bounds how far another router's clock may be ahead of ours. Sequences
// begin as nanoseconds since 1970, so that one event from nowhere could otherwise
// take them to their end.
const maxAhead = 24 * time.Hour

// Outcome is what became of another router's event.
type Outcome string

// The outcomes.
const (
	Inserted            Outcome = "inserted"             // the session had no binding
	Refreshed           Outcome = "refreshed"            // it had the same: its idle time begins anew
	ReplacedExpired     Outcome = "replaced_expired"     // its binding's idle time had ended
	ReplacedNewer       Outcome = "replaced_newer"       // the event's binding is newer
	IgnoredInitializing Outcome = "ignored_initializing" // it is being decided here, and that will be newer
	IgnoredConflict     Outcome = "ignored_conflict"     // the binding here is newer
	IgnoredOwn          Outcome = "ignored_own"          // it came back from this router
	IgnoredOff          Outcome = "ignored_off"          // sessions are not bound here
	RejectedSessionID   Outcome = "rejected_session_id"  // empty or too long
	RejectedVersion     Outcome = "rejected_version"     // sequence 0, or more than a day ahead
	RejectedCapacity    Outcome = "rejected_capacity"    // the table is full
)

// Apply takes in another router's event. generation is that of the record that
// the event's worker has here; the caller drops events whose worker has none.
// Every sequence that is seen here is below those of later bindings made here.
func (t *Table) Apply(ev Event, generation uint64, now time.Time) Outcome {
	switch {
	case !t.Enabled():
		return IgnoredOff
	case ev.ID == "" || len(ev.ID) > MaxIDBytes:
		return RejectedSessionID
	case t.cfg.Writer != 0 && ev.Version.Writer == t.cfg.Writer:
		return IgnoredOwn
	case ev.Version.Sequence == 0 || ev.Version.Sequence > nanos(now.Add(maxAhead)):
		return RejectedVersion
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sequence = max(t.sequence, ev.Version.Sequence)
	return t.apply(ev, Target{Worker: ev.Worker, Generation: generation}, now)
}

func (t *Table) apply(ev Event, target Target, now time.Time) Outcome {
	outcome := Inserted
	if e := t.entries[ev.ID]; e != nil && e.over(now) {
		outcome = ReplacedExpired
	}
	e := t.live(ev.ID, now)
	switch {
	case e == nil:
		if e = t.insert(ev.ID, now); e == nil {
			return RejectedCapacity
		}
		t.bind(e, target, ev.Version)
	case !e.bound:
		return IgnoredInitializing
	case e.target == target:
		outcome = Refreshed
		if ev.Version.Compare(e.version) > 0 {
			e.version = ev.Version
		}
	case ev.Version.Compare(e.version) > 0:
		outcome = ReplacedNewer
		t.move(e, target, ev.Version)
	default:
		return IgnoredConflict
	}
	if e.leases == 0 {
		t.arm(e, now)
	}
	return outcome
}

// next is the version of a binding made now: newer than all that were seen.
func (t *Table) next(now time.Time) Version {
	t.sequence = max(t.sequence+1, nanos(now))
	return Version{Sequence: t.sequence, Writer: t.cfg.Writer}
}

// nanos are the nanoseconds since 1970, 0 before.
func nanos(now time.Time) uint64 { return uint64(max(now.UnixNano(), 0)) }
