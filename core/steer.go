package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/routerd/routerd/core/affinity"
)

// A session goes where it went before. Its first booking takes the binding before
// the selection and chooses for all; who comes meanwhile waits for it, counted in
// the limits of its class but in no lane, so that a hundred first requests of one
// session need one decision.

// takeSession takes the binding of the request's session, or waits for whoever
// initialises it. A request with a pin or an affinity target leaves it alone, and
// what books nothing reads it only.
func (p *Partition) takeSession(ctx context.Context, a *attempt) error {
	id := a.req.boundSession()
	if id == "" || a.req.Target != nil || a.unsteered {
		return nil
	}
	if a.req.Kind != Book || a.req.Pin != nil {
		if target, ok := p.sessions.Lookup(id, time.Now()); ok {
			p.bind(a, target)
		}
		return nil
	}
	for {
		if a.hold.State() == affinity.Unpinned {
			a.hold = p.sessions.Take(id, time.Now())
		}
		switch a.hold.State() {
		case affinity.Bound:
			p.bind(a, a.hold.Target())
			return nil
		case affinity.Waiting:
			if err := p.awaitSession(ctx, a); err != nil {
				return err
			}
			a.hold = p.sessions.Take(id, time.Now())
			if a.hold.State() == affinity.Unpinned {
				return nil
			}
		default:
			a.bound, a.exclusive = nil, false
			return nil
		}
	}
}

// bind notes what the session is bound to. Unless bindings are advice to the
// policy, the request waits for that rank alone; a pin goes its own way.
func (p *Partition) bind(a *attempt, target affinity.Target) {
	a.bound, a.exclusive = &target, !p.core.soft.Load() && a.req.Pin == nil
}

// awaitSession waits until the session's initialiser has bound it or given up.
func (p *Partition) awaitSession(ctx context.Context, a *attempt) error {
	w := &a.waiting
	p.mu.Lock()
	p.returned(a)
	if w.state == granted {
		p.leaveQueue(a) // others may go meanwhile: the initialiser itself may need the rank
	}
	if w.state == notWaiting {
		class := p.queue.Class(a.req.Class)
		a.beginWait(class)
		workers := p.view.Load().serving
		if w.wake != nil {
			workers = math.MaxInt // it was let in before: no limit sends it away now
		}
		if err := p.queue.Hold(&w.place, workers); err != nil {
			p.mu.Unlock()
			return sessionFull(err)
		}
		w.state = held
	}
	p.mu.Unlock()
	began := time.Now()
	defer func() { w.waited += time.Since(began) }()
	limit := time.NewTimer(w.limit.Sub(began))
	defer limit.Stop()
	select {
	case <-a.hold.Changed():
		return nil
	case <-ctx.Done():
		if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	case <-limit.C:
	case <-p.core.ended:
		return ending()
	}
	return sessionTimeout(a)
}

// steer looks where the session's worker is among the candidates. row is its row
// of the table, -1 when the policy has to choose. again asks for the session to
// be taken anew.
func (p *Partition) steer(a *attempt) (again bool, err error) {
	a.boundRow = -1
	target := a.bound
	if t := a.req.Target; t != nil {
		target = a.targeted(t)
	}
	if target == nil {
		return false, nil
	}
	if a.req.Target == nil && a.exclusive {
		if p.movedOn(a, time.Now()) {
			a.hold.Rebind(time.Now()) // it takes what there is now
			a.bound, a.exclusive = nil, false
			return true, nil
		}
		a.exclusive = !p.core.soft.Load()
	}
	for i, row := range a.rows {
		if r := &a.view.rows[row]; r.worker == target.Worker && (target.Generation == 0 || r.member.generation == target.Generation) {
			a.boundRow = i
			return false, nil
		}
	}
	switch { // steered by somebody who is not here: the policy chooses
	case a.req.Target != nil:
		return false, nil
	case a.req.Kind != Book:
		a.bound, a.exclusive, a.unsteered = nil, false, true
		return false, nil
	}
	m := a.view.byID[target.Worker.ID]
	if a.req.Pin != nil {
		return false, p.pinAgainst(a, target, m)
	}
	switch {
	case p.lost(target, m, time.Now()), a.failedOn(target):
		a.hold.Rebind(time.Now())
		a.bound, a.exclusive = nil, false
		p.look() // who waits for that worker follows
		return true, nil
	case a.exclusive && a.req.Allow != nil && !a.allowed[a.view.index(m)]:
		return false, &Error{
			Code: CodeSessionBound, Field: "allow",
			Message: fmt.Sprintf("the session is bound to worker %q, which is not in the allow-set", m.record.Name),
		}
	}
	if !a.exclusive { // the policy chooses, and the session follows
		a.bound = nil
		return false, nil
	}
	// The request asks for what the session's worker lacks: it goes elsewhere and
	// the session stays.
	a.hold.Abandon(time.Now())
	a.bound, a.exclusive, a.unsteered = nil, false, true
	return false, nil
}

// movedOn tells whether the session of a request is not bound any more to what it was
// bound to when the request took it.
func (p *Partition) movedOn(a *attempt, now time.Time) bool {
	target, ok := p.sessions.Lookup(a.req.boundSession(), now)
	return !ok || target != *a.bound
}

// pinAgainst refuses a pin to another worker than the one that the session is
// bound to and that could serve the request, unless bindings are advice. Where it
// does not, the session stays as it is.
func (p *Partition) pinAgainst(a *attempt, target *affinity.Target, m *member) error {
	switch {
	case p.core.soft.Load(), p.lost(target, m, time.Now()), a.failedOn(target),
		!a.placed.serves(m, a.req.Adapter), !a.req.Constraints.met(&m.record):
		return nil
	}
	if len(a.rows) > 0 && a.view.rows[a.rows[0]].member == m { // the pinned one
		if rank := a.req.Pin.Rank; rank != nil && *rank != target.Worker.Rank {
			return &Error{
				Code: CodeSessionBound, Field: "pin",
				Message: fmt.Sprintf("the session is bound to rank %d of worker %q, not to the pinned rank %d", target.Worker.Rank, m.record.Name, *rank),
			}
		}
		return nil // its other ranks will do while the session's takes no more
	}
	return &Error{
		Code: CodeSessionBound, Field: "pin",
		Message: fmt.Sprintf("the session is bound to worker %q, not to the pinned %s", m.record.Name, a.req.Pin),
	}
}

// lost tells whether the rank that a session is bound to serves nobody: its record
// or its rank has gone, it is not ready, or nobody can reach it. m is the member of
// that id now, or nil.
func (p *Partition) lost(target *affinity.Target, m *member, now time.Time) bool {
	return m == nil || m.generation != target.Generation || m.lifecycle != Ready ||
		!slices.Contains(m.record.Ranks(), target.Worker.Rank) || p.core.inhibited.Load().holds(m, now)
}

// wasOutOfReach tells whether a query may have gone elsewhere because nobody could
// reach the worker of its session: not past it for what it asks for, so that its
// booking looks again, by when the worker may be in reach.
func (p *Partition) wasOutOfReach(a *attempt) bool {
	target, ok := p.sessions.Lookup(a.req.boundSession(), time.Now())
	m := a.view.byID[target.Worker.ID]
	return ok && m != nil && a.passed.holds(m, a.started)
}

// failedOn tells whether this request has failed on the target's worker.
func (a *attempt) failedOn(target *affinity.Target) bool {
	for _, w := range a.req.Exclude {
		if w.ID == target.Worker.ID {
			return true
		}
	}
	return false
}

// targeted is the rank that an affinity target leads to, nil for none: the policy
// chooses then, among the worker's ranks where it has several.
func (a *attempt) targeted(t *Pin) *affinity.Target {
	m := a.view.named(t)
	for _, row := range a.rows {
		r := &a.view.rows[row]
		if r.member == m && (t.Rank == nil && len(a.rows) == 1 || t.Rank != nil && *t.Rank == r.worker.Rank) {
			return &affinity.Target{Worker: r.worker, Generation: m.generation}
		}
	}
	return nil
}

// keepToTarget leaves the policy the ranks of the worker that an affinity target
// without a rank names, if one of them may serve.
func (a *attempt) keepToTarget() {
	a.open = a.open[:0]
	t := a.req.Target
	if t == nil || t.Rank != nil {
		return
	}
	m := a.view.named(t)
	if slices.ContainsFunc(a.rows, func(row int32) bool { return a.view.rows[row].member == m }) {
		a.open = append(a.open, a.rows...)
		a.dropRows(func(r *viewRow) bool { return r.member != m })
	}
}

// followsSession tells whether the session's worker is the choice, without the
// policy being asked.
func (p *Partition) followsSession(a *attempt) bool {
	return a.boundRow >= 0 && (a.req.Target != nil || a.exclusive)
}

// dropSessions forgets the bindings to workers and ranks that have left.
func (p *Partition) dropSessions() {
	v := p.view.Load()
	p.sessions.Drop(func(t affinity.Target) bool {
		m := v.byID[t.Worker.ID]
		return m == nil || m.generation != t.Generation || !slices.Contains(m.record.Ranks(), t.Worker.Rank)
	})
}
