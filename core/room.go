package core

import (
	"slices"
	"time"

	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
)

// leavesSession tells whether the request cannot go to the worker that its session
// was bound to, so that there is nothing to wait for: the session has moved, or
// bindings have become advice, or the worker may not serve the request, or is out of
// reach while others are not. mu must be held.
func (p *Partition) leavesSession(a *attempt) bool {
	now := time.Now()
	if p.core.soft.Load() || p.movedOn(a, now) {
		return true
	}
	mine := p.boundRow(a)
	return mine == nil || p.core.inhibited.Load().holds(mine.member, now) && p.othersServe(a, mine.member, now)
}

// boundRow is the row of the session's rank among those that may serve; nil when it
// is not there. mu must be held.
func (p *Partition) boundRow(a *attempt) *viewRow {
	w := &a.waiting
	at, ok := slices.BinarySearchFunc(w.rows, a.bound.Worker, func(row int32, worker fleet.Worker) int {
		return w.seen.rows[row].worker.Compare(worker)
	})
	if !ok {
		return nil
	}
	return &w.seen.rows[w.rows[at]]
}

// othersServe tells whether another worker may serve the request and neither
// refuses nor is out of reach. mu must be held.
func (p *Partition) othersServe(a *attempt, than *member, now time.Time) bool {
	w := &a.waiting
	return slices.ContainsFunc(w.rows, func(row int32) bool {
		r := &w.seen.rows[row]
		return r.member != than && !p.out(r, now)
	})
}

// out tells whether nobody can reach a rank's worker, or it refuses. mu must be
// held.
func (p *Partition) out(r *viewRow, now time.Time) bool {
	refused := p.core.refusals.Load()
	return p.core.inhibited.Load().holds(r.member, now) || refused != nil && p.refusing(refused, r, now)
}

// free counts the ranks that may serve the request and are not busy for its
// class, up to a number. Whom nobody can reach, or who refuses, counts only where
// all do, as in the decision itself. Where all are overloaded nobody waits: the
// request is to learn that. mu must be held.
func (p *Partition) free(a *attempt, class *queue.Class, upTo int) int {
	now := time.Now()
	if a.exclusive {
		return p.freeForSession(a, class, upTo, now)
	}
	n, usable, in := p.freeOf(a, class, upTo, now, a.req.Pin != nil)
	if !in {
		n, usable, _ = p.freeOf(a, class, upTo, now, true)
	}
	if !usable {
		return upTo
	}
	return n
}

// freeForSession is free for a request that only its session's rank serves: it
// waits for that also where the worker refuses, if there is any other.
func (p *Partition) freeForSession(a *attempt, class *queue.Class, upTo int, now time.Time) int {
	r := p.boundRow(a)
	if r == nil {
		return upTo
	}
	refused := p.core.refusals.Load()
	if refused != nil && p.refusing(refused, r, now) && p.othersServe(a, r.member, now) ||
		p.overloaded(r, now) || p.busy(r, class, now) {
		return 0
	}
	return min(1, upTo)
}

// freeOf counts as free does, over all ranks or over those that are not out. usable
// tells whether one of them is not overloaded, in whether there was any.
func (p *Partition) freeOf(a *attempt, class *queue.Class, upTo int, now time.Time, all bool) (n int, usable, in bool) {
	w := &a.waiting
	for _, row := range w.rows {
		if n == upTo {
			break
		}
		r := &w.seen.rows[row]
		if !all && p.out(r, now) {
			continue
		}
		in = true
		if p.overloaded(r, now) {
			continue
		}
		usable = true
		if !p.busy(r, class, now) {
			n++
		}
	}
	return n, usable, in
}

// busy tells whether a rank is busy for a class. mu must be held.
func (p *Partition) busy(r *viewRow, class *queue.Class, now time.Time) bool {
	if !class.Busy.Enabled() {
		return false
	}
	l, _ := p.tracker.Load(r.slot, now)
	return class.Busy.Holds(float64(l.PrefillTokens), l.ActiveRequests, int64(r.member.record.MaxBatchedTokens))
}
