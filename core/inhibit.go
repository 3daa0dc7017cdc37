package core

import (
	"time"

	"github.com/routerd/routerd/fleet"
)

// How long a worker that cannot be reached is left out: doubled with each
// failure in a row.
const (
	inhibitFirst = time.Second
	inhibitMost  = 30 * time.Second
	// inhibitMemory is how long after its end an inhibition still counts for
	// the next one.
	inhibitMemory = 10 * inhibitMost
)

// inhibitions is an immutable table of the workers that could not be reached
// and have not answered since. A nil table is empty.
type inhibitions struct {
	workers map[fleet.WorkerID]inhibition // not empty
	until   time.Time                     // the latest of all
}

type inhibition struct {
	generation uint64 // of the record: a new one starts clean
	until      time.Time
	wait       time.Duration
}

// Inhibit reports that a worker could not be reached: it is left out for a
// second, after each further failure twice as long, at most 30 s. Failures
// while it is left out count once with the first: they are of requests that
// were under way together. Requests without a pin pass it over as long as
// anybody else is eligible for them; decisions under way do so from their next
// attempt on. An unknown id is ignored. Safe for concurrent use; it is short.
func (c *SelectionCore) Inhibit(id fleet.WorkerID) {
	c.members.Lock()
	defer c.members.Unlock()
	entry, ok := c.directory.Load().workers[id]
	if !ok {
		return
	}
	generation := entry.partition.view.Load().byID[id].generation
	now := time.Now()
	was := c.inhibited.Load().of(id, generation)
	if now.Before(was.until) {
		return
	}
	if now.Sub(was.until) > inhibitMemory {
		was = inhibition{}
	}
	wait := min(max(2*was.wait, inhibitFirst), inhibitMost)
	c.inhibited.Store(c.inhibited.Load().changed(now, func(workers map[fleet.WorkerID]inhibition) {
		workers[id] = inhibition{generation, now.Add(wait), wait}
	}))
}

// Reached reports that a worker has answered, whatever it said: that ends its
// inhibition, and the next one begins at a second again. It costs one atomic
// load while nobody is inhibited. Safe for concurrent use.
func (c *SelectionCore) Reached(id fleet.WorkerID) {
	if !c.inhibited.Load().has(id) {
		return
	}
	c.members.Lock()
	defer c.members.Unlock()
	c.forgetInhibition(id)
}

// forgetInhibition ends the inhibitions of some workers. members must be held.
func (c *SelectionCore) forgetInhibition(ids ...fleet.WorkerID) {
	for _, id := range ids {
		if t := c.inhibited.Load(); t.has(id) {
			c.inhibited.Store(t.changed(time.Now(), func(workers map[fleet.WorkerID]inhibition) { delete(workers, id) }))
		}
	}
}

func (t *inhibitions) has(id fleet.WorkerID) bool {
	if t == nil {
		return false
	}
	_, ok := t.workers[id]
	return ok
}

// of is the inhibition of a worker's record, over or not; zero when there is
// none.
func (t *inhibitions) of(id fleet.WorkerID, generation uint64) inhibition {
	if t == nil {
		return inhibition{}
	}
	w := t.workers[id]
	if w.generation != generation {
		return inhibition{}
	}
	return w
}

// active tells whether anybody is left out at a moment.
func (t *inhibitions) active(now time.Time) bool { return t != nil && now.Before(t.until) }

// holds tells whether a worker is left out at a moment.
func (t *inhibitions) holds(m *member, now time.Time) bool {
	return t.active(now) && now.Before(t.of(m.record.ID, m.generation).until)
}

// changed returns a changed copy without what has long ended; nil when nothing
// is left.
func (t *inhibitions) changed(now time.Time, change func(map[fleet.WorkerID]inhibition)) *inhibitions {
	var was map[fleet.WorkerID]inhibition
	if t != nil {
		was = t.workers
	}
	out := &inhibitions{workers: remembered(was, change, func(w inhibition) bool { return now.Sub(w.until) > inhibitMemory })}
	if len(out.workers) == 0 {
		return nil
	}
	for _, w := range out.workers {
		if w.until.After(out.until) {
			out.until = w.until
		}
	}
	return out
}

// reasons are a member's reasons and that it is inhibited, for operators.
func (t *inhibitions) reasons(m *member, now time.Time) []string {
	out := append([]string{}, m.reasons...)
	if t.holds(m, now) {
		until := t.of(m.record.ID, m.generation).until
		out = append(out, "inhibited: it could not be called, until "+until.UTC().Format(time.RFC3339))
	}
	return out
}
