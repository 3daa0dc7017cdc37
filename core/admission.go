package core

import (
	"context"
	"slices"
	"time"

	"github.com/routerd/routerd/core/queue"
)

// Why a queue beside optimistic decisions?
//
// A request waits only when every rank that may serve it is busy for its class,
// or others of its lane wait before it. Whoever frees capacity looks, under the
// partition's lock, who may go on, and wakes them: each has a grant until it has
// booked or given up, and nobody new is let past more grants than there are free
// ranks. The decision itself is made by the woken request, with no lock held; at
// its commit some rank must still be free, else it goes back to its place.

// waiting is a request's place in the queue. The partition's lock guards it from
// the moment that the request is queued or held until it was taken out.
type waiting struct {
	place  queue.Waiter
	wake   chan struct{} // closed with the grant
	limit  time.Time     // how long it may wait; zero before it has waited
	since  time.Time     // when it began to wait first; zero when it never did
	state  waitState
	rows   []int32 // of seen: who may serve it
	seen   *view
	looked time.Time // when the index was last asked
	waited time.Duration
	// returning is from when it lost its grant, or was let past in vain, until it is
	// back in its place or has given up; nobody who waits is granted meanwhile.
	returning bool
}

type waitState uint8

const (
	notWaiting waitState = iota
	held                 // it waits for its session's initialiser, in no lane
	queued               // it is in its lane
	granted              // it may book, whoever else waits
)

// admit waits until the request may decide. It returns at once for what never
// waits: advisory requests, further attempts, and where no class is ever busy all
// but the requests of bound sessions.
func (p *Partition) admit(ctx context.Context, a *attempt) error {
	w := &a.waiting
	if w.state == granted || !a.queues() {
		return nil
	}
	if w.state == notWaiting && !w.returning && !a.exclusive && !p.core.queueing.Load().Enabled() {
		return nil
	}
	for {
		if !p.upToDate(a) {
			if err := p.candidatesToWait(a, p.view.Load()); err != nil {
				return err
			}
		}
		p.mu.Lock()
		if !p.upToDate(a) {
			p.mu.Unlock()
			continue
		}
		class := p.class(a)
		if !a.named && p.bounded(a, class) {
			p.mu.Unlock() // it may be long
			a.needs, a.named = a.req.needs(), true
			continue
		}
		if !p.mustWait(a, class) {
			p.leaveQueue(a)
			p.returned(a)
			p.mu.Unlock()
			return nil
		}
		if !w.limit.IsZero() && !time.Now().Before(w.limit) { // it came back from a commit
			p.leaveQueue(a)
			p.returned(a)
			p.mu.Unlock()
			return p.queueTimeout(a)
		}
		if w.looked.IsZero() { // the order and the limits may go by what is cached
			p.mu.Unlock()
			if err := p.lookUp(a); err != nil {
				return err
			}
			a.noteCached(p.blockSize)
			w.looked = time.Now()
			continue
		}
		err := p.enqueue(a, class)
		p.mu.Unlock()
		if err != nil {
			return err
		}
		return p.await(ctx, a)
	}
}

// upToDate tells whether who may serve the request, as it was noted, is by the
// workers and the adapters as they are.
func (p *Partition) upToDate(a *attempt) bool {
	return a.waiting.seen == p.view.Load() && (a.req.Adapter == "" || a.placed == p.adapters.Load())
}

// candidatesToWait notes who may serve the request. What was looked up before
// counts no more.
func (p *Partition) candidatesToWait(a *attempt, v *view) error {
	a.view = nil
	if err := a.candidates(v, p); err != nil {
		return err
	}
	a.waiting.rows, a.waiting.seen = append(a.waiting.rows[:0], a.rows...), v
	return nil
}

// noteCached notes the most prompt tokens that any candidate holds.
func (a *attempt) noteCached(blockSize int) {
	a.cachedSomewhere = 0
	for row := range a.rows {
		a.cachedSomewhere = max(a.cachedSomewhere, a.cached(row, blockSize))
	}
}

// queues tells whether the request is one that may have to wait.
func (a *attempt) queues() bool { return a.req.Kind != Advisory && a.req.Attempt == 0 }

// class is the one that the request waits in: once it has waited, that in which it
// did. mu must be held.
func (p *Partition) class(a *attempt) *queue.Class {
	if w := &a.waiting; !w.since.IsZero() {
		return p.queue.Class(w.place.Class)
	}
	return p.queue.Class(a.req.Class)
}

// bounded tells whether the request waits where all who may serve it are busy. mu must
// be held.
func (p *Partition) bounded(a *attempt, class *queue.Class) bool {
	if a.exclusive {
		return !p.leavesSession(a)
	}
	return class.Busy.Enabled()
}

// mustWait tells whether the request has to queue. mu must be held.
func (p *Partition) mustWait(a *attempt, class *queue.Class) bool {
	if !p.bounded(a, class) {
		return false
	}
	lane := a.lane()
	if p.queue.Backlog(class.Name, lane) {
		return true
	}
	ahead := p.ahead(lane)
	return p.free(a, class, ahead+1) <= ahead
}

// enqueue puts the request into its lane. mu must be held.
func (p *Partition) enqueue(a *attempt, class *queue.Class) error {
	w := &a.waiting
	a.beginWait(class)
	w.place.Lane, w.place.Cached = a.lane(), a.cachedSomewhere
	again := w.wake != nil
	w.wake = make(chan struct{})
	if w.state == held || again { // it was let in before: its arrival is its place
		p.queue.Enter(&w.place)
	} else if err := p.queue.Push(&w.place, w.seen.serving); err != nil {
		return p.queueFull(a, err)
	}
	// Nobody else can go for that: who waits before it could not, nor could it.
	w.state = queued
	p.follow(a)
	p.returned(a)
	return nil
}

// beginWait fills in what the queue goes by. mu must be held.
func (a *attempt) beginWait(class *queue.Class) {
	w := &a.waiting
	if !w.since.IsZero() {
		return
	}
	w.since = time.Now()
	w.limit = w.since.Add(class.Timeout)
	arrival := a.req.Arrival
	if arrival.IsZero() {
		arrival = a.started
	}
	w.place = queue.Waiter{
		Class: class.Name, Priority: a.req.Priority, Jump: a.req.PriorityJump, Arrival: arrival,
		Tokens: int64(a.tokens), Cached: a.cachedSomewhere, Due: a.due, Owner: a,
	}
}

// await waits for the grant. Whatever ends the wait first holds: once refused a
// request is never dispatched.
func (p *Partition) await(ctx context.Context, a *attempt) error {
	w := &a.waiting
	began := time.Now()
	defer func() { w.waited += time.Since(began) }()
	limit := time.NewTimer(w.limit.Sub(began))
	defer limit.Stop()
	var err error
	select {
	case <-w.wake:
		return nil
	case <-ctx.Done():
		err = p.gaveUp(ctx, a)
	case <-limit.C:
		err = p.queueTimeout(a)
	case <-p.core.ended:
		err = ending()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.state == granted && ctx.Err() == nil {
		return nil // the grant was first
	}
	p.leaveQueue(a)
	return err
}

// leaveQueue takes a request out of the queue, or gives its grant back, and lets
// others go on. mu must be held.
func (p *Partition) leaveQueue(a *attempt) {
	w := &a.waiting
	switch w.state {
	case notWaiting:
		return
	case granted:
		if lane := w.place.Lane; p.grants[lane] > 1 {
			p.grants[lane]--
		} else {
			delete(p.grants, lane)
		}
	case held, queued:
		p.queue.Remove(&w.place)
		p.unfollow(a)
		w.state = notWaiting
		if p.core.host.Eligibility == nil {
			return // who stands behind it waits for the same ranks
		}
	}
	w.state = notWaiting
	p.pump()
}

// sendBack takes a request's grant, if it has one, and sends it to its place, which
// its arrival gives: until it is there nobody goes who waits, be it behind it. The
// request's goroutine sees to returned before it waits for anything or ends. mu must
// be held.
func (p *Partition) sendBack(a *attempt) {
	if !a.waiting.returning {
		a.waiting.returning = true
		p.returning++
	}
	p.leaveQueue(a)
}

// returned lets others go on once a request that was sent back is in its place or
// has given up. mu must be held.
func (p *Partition) returned(a *attempt) {
	if !a.waiting.returning {
		return
	}
	a.waiting.returning = false
	p.returning--
	p.pump()
}

// busyByNow looks whether a request that was let past, or had a grant, may book on
// the rank that was chosen: at its commit every rank may be busy, or the one that its
// session is bound to, and then it waits again; or only the chosen one takes no more,
// and then it decides again. mu must be held.
func (p *Partition) busyByNow(a *attempt, picked *viewRow) outcome {
	class := p.class(a)
	if !a.queues() || !class.Busy.Enabled() {
		return decided
	}
	now := time.Now()
	l, _ := p.tracker.Load(picked.slot, now)
	rows := a.rows
	if len(a.open) > 0 {
		rows = a.open
	}
	switch {
	case a.exclusive && a.boundRow >= 0:
		if !p.busy(picked, class, now) {
			return decided
		}
	case slices.ContainsFunc(rows, func(row int32) bool { return !p.busy(&a.view.rows[row], class, now) }):
		if !class.Busy.Full(l.ActiveRequests) {
			return decided
		}
		return conflicted
	}
	p.sendBack(a)
	return anew
}

// pump grants what can go on. mu must be held; it is quick when nobody waits.
func (p *Partition) pump() {
	if p.queue.Len() == 0 || p.returning > 0 {
		return
	}
	v := p.view.Load()
	for {
		next := p.queue.Next(func(w *queue.Waiter) bool {
			a, ok := w.Owner.(*attempt)
			return !ok || p.mayGo(a, v)
		})
		if next == nil {
			return
		}
		if a, ok := next.Owner.(*attempt); ok {
			p.unfollow(a)
			a.waiting.state = granted
			p.grants[a.waiting.place.Lane]++
			close(a.waiting.wake)
		}
	}
}

// mayGo tells whether a waiting request may go on. One that nobody may serve any
// more goes on too, to learn that. mu must be held.
func (p *Partition) mayGo(a *attempt, v *view) bool {
	w := &a.waiting
	if !p.upToDate(a) && p.candidatesToWait(a, v) != nil {
		return true
	}
	if a.exclusive && p.leavesSession(a) {
		return true
	}
	ahead := p.ahead(w.place.Lane)
	return p.free(a, p.queue.Class(w.place.Class), ahead+1) > ahead
}
