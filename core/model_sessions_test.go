package core_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// What the model knows of the bindings of sessions.

// How a session that is bound already takes a booking that was chosen before.
const (
	follows = iota
	moves
	stays
	refuses
)

// elsewhere tells what becomes of a binding by the booking of a choice.
func (m *wholeModel) elsewhere(e *modelBinding, c *modelChoice) int {
	if e == nil || e.rank == c.rank && e.generation == c.generation {
		return follows
	}
	w := m.workers[workerOf(e.rank)]
	switch {
	case w == nil || w.generation != e.generation || w.state != core.Ready || w.name == c.excluded || w.unreachable(time.Now()):
		return moves
	case c.adapter != "" && !w.adapter:
		return stays
	}
	return refuses
}

// passes notes that a session was bound by somebody else than its initialiser. That
// one learns it at its commit and follows; if the binding has gone by then, with its
// worker or its time, there is none to follow, and it binds the session itself. Until
// then the session counts as one that nobody initialises, and the next that comes
// decides too. Of the two the one that commits last follows the other: all requests
// of the session go one way in any case, so that a decision is all that this costs.
func (m *wholeModel) passes(part, session string) {
	for _, f := range m.flying {
		f.passed = f.passed || f.part == part && f.ask.session == session && f.takes()
	}
}

// flies tells whether a request of the choice's session is under way.
func (m *wholeModel) flies(c *modelChoice) bool {
	return slices.ContainsFunc(m.flying, func(f *flight) bool { return f.part == c.part && f.ask.session == c.session && f.takes() })
}

// bound is the rank that the core has a session bound to; empty for none.
func (m *wholeModel) bound(part, session string) string {
	w, ok := m.BoundTo(model(part), session)
	if !ok {
		return ""
	}
	for _, name := range []string{"w1", "w2", "w3"} {
		if fleet.IDFromName(name) == w.ID {
			return rankName(name, w.Rank)
		}
	}
	return w.String()
}

// late orders the answers of one moment: who binds a session comes before those that
// follow it, that have failed on its worker and bind it anew, or that go past it.
func (m *wholeModel) late(f *flight) []uint64 {
	return []uint64{flagOf(f.follows()), flagOf(f.ask.exclude != ""), flagOf(m.goesPast(f))}
}

// goesPast tells whether a request was booked elsewhere than where its session is
// bound, for what the worker there lacks.
func (m *wholeModel) goesPast(f *flight) bool {
	if f.err != nil || !f.takes() {
		return false
	}
	bound := m.bound(f.part, f.ask.session)
	return bound != "" && bound != rankName(f.sel.Name, f.sel.Worker.Rank) && !m.serves(&modelBinding{rank: bound}, f)
}

// leased is the binding that a booking has a lease on.
func (m *wholeModel) leased(f *flight, rank string, w *modelWorker) (*modelBinding, error) {
	sessions := m.parts[f.part]
	e := sessions[f.ask.session]
	switch {
	case f.sel.By == policy.BySession:
		switch {
		case !m.kind.exact() || e != nil && e.rank == rank:
			return e, nil
		case e != nil && e.born == m.steps, e == nil && m.initialised(f.part, f.ask.session): // it was the one before that
			return nil, nil
		}
		return nil, fmt.Errorf("want the session's worker: %+v", e)
	case f.unsteered:
		return nil, nil
	case e == nil && m.bound(f.part, f.ask.session) == "":
		if m.kind.small || m.initialised(f.part, f.ask.session) || m.opened && f.ask.adapter != "" {
			return nil, nil // the next one has dropped it at once, or it never took it
		}
		return nil, errors.New("and its session is not bound")
	case e != nil && e.loose && e.rank != rank && m.bound(f.part, f.ask.session) == e.rank: // it had begun before that
		if !m.serves(e, f) {
			return nil, nil // it goes past it
		}
		return e, nil
	case e == nil, !m.kind.soft && (e.lost || !m.usable(e, f)):
		moved := e != nil
		if moved {
			m.met["moved session"]++
		}
		// Behind the gate several may have begun to initialise, one after the other:
		// all follow the first that books. Who waits for the worker that it was bound
		// to before may stand behind others there.
		e = &modelBinding{rank: rank, generation: w.generation, born: m.steps, loose: (m.opened || moved) && m.initialised(f.part, f.ask.session)}
		sessions[f.ask.session] = e
		if f.passed {
			m.passes(f.part, f.ask.session)
		}
		return e, nil
	case m.kind.soft:
		e.rank, e.generation = rank, w.generation
		return e, nil
	case !m.serves(e, f):
		return nil, nil
	case e.loose || m.kind.small:
		return e, nil
	}
	return nil, fmt.Errorf("and not its session's worker: %+v", e)
}

// reconcile compares the bindings. One may have been dropped by a request that
// could not use it and has made no other.
func (m *wholeModel) reconcile(answers []*flight) error {
	now := time.Now()
	for part, sessions := range m.parts {
		for _, id := range []string{"s1", "s2", "s3", "s4"} {
			e, got := sessions[id], m.bound(part, id)
			if e != nil && m.opened && m.together(answers, part, id) > 0 {
				e.loose = true // which binding each of them has a lease on is chance
			}
			switch {
			case e == nil && got == "", e != nil && e.rank == got:
				continue
			case !m.kind.exact():
				if delete(sessions, id); got != "" {
					sessions[id] = &modelBinding{rank: got, generation: m.workers[workerOf(got)].generation, loose: true}
				}
				continue
			case e != nil && e.loose && slices.ContainsFunc(answers, func(f *flight) bool {
				return f.part == part && f.ask.session == id && f.takes() && f.err == nil && rankName(f.sel.Name, f.sel.Worker.Rank) == got
			}):
				e.rank, e.generation = got, m.workers[workerOf(got)].generation // it was the first
				continue
			case e != nil && got == "" && m.leases(part, id, e) == 0 && !now.Before(e.touched.Add(modelIdle)):
				delete(sessions, id) // its idle time is over
				continue
			case e != nil && got == "" && e.loose && m.initialised(part, id):
				delete(sessions, id) // of several at once one could not use what another had bound, and binds anew
				continue
			case e != nil && got == "" && e.lost && (m.initialised(part, id) || slices.ContainsFunc(answers, func(f *flight) bool { return f.part == part && f.ask.session == id && f.takes() })):
				delete(sessions, id)
				continue
			}
			return fmt.Errorf("session %s of %s is bound to %q; want %+v", id, part, got, e)
		}
	}
	return nil
}

// together counts the answers of one session in one step.
func (m *wholeModel) together(answers []*flight, part, session string) (n int) {
	for _, f := range answers {
		if f.part == part && f.ask.session == session && f.takes() {
			n++
		}
	}
	return n
}

// leases counts what keeps a binding: bookings, and those that wait for its worker.
func (m *wholeModel) leases(part, session string, e *modelBinding) (n int) {
	for _, b := range m.held {
		if b.lease == e {
			n++
		}
	}
	for _, f := range m.flying {
		if f.part == part && f.ask.session == session && f.takes() && !f.unsteered && !e.loose {
			n++
		}
	}
	return n
}

func (m *wholeModel) lookAtSessions(part string, sessions map[string]*modelBinding) error {
	got := m.stats(part).Sessions
	leases, initialising, surely, loose := 0, map[string]bool{}, map[string]bool{}, !m.kind.exact()
	for id, e := range sessions {
		leases += m.leases(part, id, e)
		loose = loose || e.loose
	}
	for _, f := range m.inPart(part) {
		if f.takes() && !f.unsteered && sessions[f.ask.session] == nil {
			initialising[f.ask.session] = true
			if !f.passed && !f.strays {
				surely[f.ask.session] = true
			}
		}
	}
	if got.Bound != len(sessions) || got.Initialising > len(initialising) || m.kind.exact() && got.Initialising < len(surely) {
		return fmt.Errorf("%d sessions are bound and %d initialising; want %d and %d", got.Bound, got.Initialising, len(sessions), len(initialising))
	}
	if !loose && got.Leases != leases {
		return fmt.Errorf("%d leases; want %d", got.Leases, leases)
	}
	most := len(m.inPart(part))
	for _, b := range m.held {
		if b.part == part && b.withSession {
			most++
		}
	}
	if got.Leases < 0 || got.Leases > most {
		return fmt.Errorf("%d leases; want at most %d", got.Leases, most)
	}
	return nil
}
