package core

import (
	"context"
	"slices"
	"time"
)

// Why a turn?
//
// A decision whose rank was booked meanwhile decides again. Under a burst the
// same request could lose for ever, so that after two conflicts it takes a
// turn: from its snapshot to its commit nobody's booking can make it void. What
// others decide meanwhile waits for that one commit and is then judged as usual.

// turnstile hands out turns in the order of their tickets. The partition's lock
// guards it.
type turnstile struct {
	holder  *turn
	waiting []*turn // ascending by ticket
}

// turn is the right to commit whatever was booked meanwhile.
type turn struct {
	ticket uint64
	ready  chan struct{} // closed when the turn has come
	done   chan struct{} // closed when it is given up
}

// takeTurn waits for the request's turn.
func (p *Partition) takeTurn(ctx context.Context, ticket uint64) (*turn, error) {
	t := &turn{ticket: ticket, ready: make(chan struct{}), done: make(chan struct{})}
	p.mu.Lock()
	ts := &p.turns
	if ts.holder == nil {
		ts.holder = t
		p.mu.Unlock()
		return t, nil
	}
	at, _ := slices.BinarySearchFunc(ts.waiting, ticket, func(w *turn, ticket uint64) int {
		if w.ticket < ticket {
			return -1
		}
		return 1
	})
	ts.waiting = slices.Insert(ts.waiting, at, t)
	p.mu.Unlock()
	select {
	case <-t.ready:
		return t, nil
	case <-ctx.Done():
		p.leaveTurn(t)
		return nil, context.Cause(ctx)
	}
}

// leaveTurn gives up a turn, held or waited for.
func (p *Partition) leaveTurn(t *turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ts := &p.turns
	if ts.holder != t {
		ts.waiting = slices.DeleteFunc(ts.waiting, func(w *turn) bool { return w == t })
		return
	}
	close(t.done)
	ts.holder = nil
	if len(ts.waiting) > 0 {
		ts.holder = ts.waiting[0]
		ts.waiting = slices.Delete(ts.waiting, 0, 1)
		close(ts.holder.ready)
	}
}

// lockForCommit takes the partition's lock. Without a turn of its own it first
// waits for the turn in progress, if there is one: for that one only, and no
// longer than a turn may last.
func (p *Partition) lockForCommit(ctx context.Context, mine *turn) error {
	p.mu.Lock()
	holder := p.turns.holder
	if holder == nil || mine != nil {
		return nil
	}
	p.mu.Unlock()
	limit := time.NewTimer(time.Duration(p.core.turnLimit.Load()))
	defer limit.Stop()
	select {
	case <-holder.done:
	case <-limit.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.mu.Lock()
	return nil
}
