package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
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
}

type waitState uint8

const (
	notWaiting waitState = iota
	held                 // it waits for its session's initialiser, in no lane
	queued               // it is in its lane
	granted              // it may book, whoever else waits
)

// admit waits until the request may decide. It returns at once for what never
// waits: advisory requests, further attempts, and classes that are never busy.
func (p *Partition) admit(ctx context.Context, a *attempt) error {
	w := &a.waiting
	if w.state == granted || !a.queues() {
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
		if !p.mustWait(a, class) {
			p.leaveQueue(a)
			p.mu.Unlock()
			return nil
		}
		if !w.limit.IsZero() && !time.Now().Before(w.limit) { // it came back from a commit
			p.leaveQueue(a)
			p.mu.Unlock()
			return queueTimeout(w.since)
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

// mustWait tells whether the request has to queue. mu must be held.
func (p *Partition) mustWait(a *attempt, class *queue.Class) bool {
	if !class.Busy.Enabled() && !a.exclusive || a.exclusive && p.leavesSession(a) {
		return false
	}
	lane := a.lane()
	return p.queue.Backlog(class.Name, lane) || p.free(a, class, p.ahead(lane)+1) <= p.ahead(lane)
}

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

// ahead is the number of grants that go before a request of a lane: those of its
// own lane, for the lane without constraints those of all, for that of a session's
// rank those of all sessions there. mu must be held.
func (p *Partition) ahead(lane string) (n int) {
	prefix := ""
	if lane != "" {
		if lane[0] != '@' {
			return p.grants[lane]
		}
		rank, _, _ := strings.Cut(lane, "\x00")
		prefix = rank + "\x00"
	}
	for l, g := range p.grants {
		if strings.HasPrefix(l, prefix) {
			n += g
		}
	}
	return n
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

// lane names those who wait for the same workers: what is pinned or bound
// elsewhere does not hold them up.
func (a *attempt) lane() string {
	req := a.req
	switch {
	case a.exclusive:
		return "@" + a.bound.Worker.String() + "\x00" + req.needs()
	case req.Pin != nil && req.Pin.Rank != nil:
		return "=" + req.Pin.String() + "/" + strconv.FormatUint(uint64(*req.Pin.Rank), 10)
	case req.Pin != nil:
		return "=" + req.Pin.String()
	}
	return req.needs()
}

// needs names what narrows the workers of a request, but its pin and its session;
// empty for nothing.
func (r *Request) needs() string {
	if r.Allow == nil && r.Adapter == "" && r.Constraints.empty() {
		return ""
	}
	var b strings.Builder
	part := func(kind byte, text string) { fmt.Fprintf(&b, "%c%d:%s", kind, len(text), text) }
	part('m', r.Adapter)
	if r.Allow != nil {
		part('A', strconv.Itoa(len(r.Allow)))
	}
	for _, name := range slices.Sorted(slices.Values(r.Allow)) {
		part('a', name)
	}
	for _, taint := range slices.Sorted(slices.Values(r.Constraints.RequiredTaints)) {
		part('t', taint)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Constraints.RequiredLabels)) {
		part('l', key)
		part('v', r.Constraints.RequiredLabels[key])
	}
	return b.String()
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
		return queueFull(err)
	}
	// Nobody else can go for that: who waits before it could not, nor could it.
	w.state = queued
	p.follow(a)
	return nil
}

// follow notes who waits for the worker of its session. mu must be held.
func (p *Partition) follow(a *attempt) {
	if !a.exclusive {
		return
	}
	id := a.req.session()
	if p.followers[id] == nil {
		p.followers[id] = map[*attempt]struct{}{}
	}
	p.followers[id][a] = struct{}{}
}

// unfollow forgets who waits no more. mu must be held.
func (p *Partition) unfollow(a *attempt) {
	id := a.req.session()
	delete(p.followers[id], a)
	if len(p.followers[id]) == 0 {
		delete(p.followers, id)
	}
}

// recall takes those out of the queue who wait for another worker than the one that
// their session is bound to now: they take the session again, and their arrival is
// their place. mu must be held.
func (p *Partition) recall(id string, now affinity.Target) {
	for a := range p.followers[id] {
		if *a.bound == now {
			continue
		}
		p.queue.Remove(&a.waiting.place)
		p.unfollow(a)
		a.waiting.state = notWaiting
		close(a.waiting.wake)
	}
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
		err = gaveUp(ctx, w.since)
	case <-limit.C:
		err = queueTimeout(w.since)
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
	switch {
	case a.exclusive && a.boundRow >= 0:
		if !p.busy(picked, class, now) {
			return decided
		}
	case slices.ContainsFunc(a.rows, func(row int32) bool { return !p.busy(&a.view.rows[row], class, now) }):
		if !class.Busy.Full(l.ActiveRequests) {
			return decided
		}
		return conflicted
	}
	p.leaveQueue(a) // its arrival is its place
	return anew
}

// pump grants what can go on. mu must be held; it is quick when nobody waits.
func (p *Partition) pump() {
	if p.queue.Len() == 0 {
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

// gaveUp is why a request whose context has ended waits no more.
func gaveUp(ctx context.Context, since time.Time) error {
	err := context.Cause(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return queueTimeout(since)
	}
	return err
}

// queueFull says that the class takes no more.
func queueFull(err error) *Error {
	return &Error{Code: CodeQueueFull, Message: "every worker is busy, and " + err.Error(), RetryAfter: retryAfter, Err: err}
}

// queueTimeout says that a request has waited too long.
func queueTimeout(since time.Time) *Error {
	waited := time.Since(since).Round(time.Millisecond)
	return &Error{Code: CodeQueueTimeout, Message: fmt.Sprintf("every worker is busy: no place within %s", waited), RetryAfter: retryAfter}
}
