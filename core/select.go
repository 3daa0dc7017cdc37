package core

import (
	"context"
	"errors"
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
)

// conflictsBeforeTurn is how often a decision is made void before the request
// takes a turn.
const conflictsBeforeTurn = 2

// Select makes one selection. For a Book it reserves: after that nothing can
// fail, and the caller owns the reservation. Errors are *Error, or the cause of
// ctx when that ended before a booking was made. It blocks for a turn, for what the
// policy does and for the shared cache's deadline; and, as long as the request's class
// allows, while every rank that may serve is busy or the session's first request is
// being decided.
func (c *SelectionCore) Select(ctx context.Context, req *Request) (*Selection, error) {
	if c.closed.Load() {
		return nil, ending()
	}
	if err := req.check(); err != nil {
		return nil, err
	}
	p, a, err := c.enter(req.Partition.Normalised())
	if err != nil {
		return nil, err
	}
	defer p.give(a)
	if err := a.begin(p, req); err != nil {
		return nil, err
	}
	sel, err := p.claimAndRun(ctx, a)
	p.report(a, sel, err)
	return sel, err
}

// claimAndRun runs the selection; a Book holds the claim of its id meanwhile.
func (p *Partition) claimAndRun(ctx context.Context, a *attempt) (*Selection, error) {
	sel := &Selection{ID: a.req.SelectionID, Partition: p.key, DecisionID: a.decisionID()}
	if sel.ID == "" {
		sel.ID = sel.DecisionID
	}
	a.sel = sel
	if a.req.Kind != Book {
		if err := p.run(ctx, a); err != nil {
			return nil, err
		}
		return sel, nil
	}
	claim, ok := p.core.reservations.Claim(sel.ID)
	if !ok {
		return nil, conflict(sel.ID)
	}
	a.claim = claim
	defer func() {
		if sel.Reservation == nil { // also after a panic of a stage
			claim.Abandon()
		}
	}()
	if err := p.run(ctx, a); err != nil {
		return nil, err
	}
	a.booked.tellBooked()
	p.learn(sel.Worker, sel.Reservation.Key().Generation, a.recorded(), a.recordedExactly())
	return sel, nil
}

// run takes the session, waits in the queue where it must, and decides until a
// decision can be committed.
func (p *Partition) run(ctx context.Context, a *attempt) error {
	handle, err := p.classHandle(p.ruling.Load(), a.req.Class)
	if err != nil {
		return &Error{Code: CodePolicyFailed, Message: "no policy for this request", Err: err}
	}
	defer p.settle(a)
	if due, ok := ctx.Deadline(); ok {
		a.due = due
	}
	a.askShared(ctx, p)
	for {
		if err := p.takeSession(ctx, a); err != nil {
			return err
		}
		if err := p.admit(ctx, a); err != nil {
			return err
		}
		p.refresh(a)
		if out, err := p.decideInTurn(ctx, a, handle); out != anew || err != nil {
			return err
		}
		p.giveBack(a)
	}
}

// giveBack gives up a grant that was for another worker.
func (p *Partition) giveBack(a *attempt) {
	if a.waiting.state != granted {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sendBack(a)
}

// settle gives back what a request that has ended still holds: its place in the
// queue or its grant, and the session that it was to initialise.
func (p *Partition) settle(a *attempt) {
	a.hold.Abandon(time.Now()) // of no effect once it was committed
	if a.waiting.state == notWaiting && !a.waiting.returning {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveQueue(a)
	p.returned(a)
}

// askShared asks the shared cache once a request. Whatever goes wrong there, the
// selection goes on without.
func (a *attempt) askShared(ctx context.Context, p *Partition) {
	if len(a.prefixes) == 0 || !a.exact { // it knows blocks of tokens alone
		a.shared = a.shared[:0]
		return
	}
	if err := a.sharedHits(ctx, p); err != nil && !errors.Is(err, ErrNoSharedCache) {
		p.core.log.Debug("shared cache did not answer", "partition", p.key.String(), "err", err)
	}
}

// refresh lets the index be asked again if the request has waited for long.
func (p *Partition) refresh(a *attempt) {
	w := &a.waiting
	if w.since.IsZero() {
		return
	}
	after := p.core.queueing.Load().RefreshAfter
	if now := time.Now(); after > 0 && now.Sub(w.looked) >= after {
		w.looked, a.view = now, nil
	}
}

// outcome is how an attempt went.
type outcome uint8

const (
	decided    outcome = iota // committed
	conflicted                // the request has to decide again
	anew                      // it has to take its session or its place in the queue again
)

// decideInTurn decides until a decision can be committed, in the end in a turn
// of its own.
func (p *Partition) decideInTurn(ctx context.Context, a *attempt, handle *policy.Handle) (out outcome, err error) {
	for a.req.Kind != Book || a.conflicts < conflictsBeforeTurn {
		if out, err := p.attempt(ctx, ctx, a, handle); out != conflicted || err != nil {
			return out, err
		}
		a.conflicts++
	}
	if a.turn, err = p.takeTurn(ctx, a.ticket); err != nil {
		return decided, err
	}
	a.tookTurn = true
	defer func() {
		p.leaveTurn(a.turn)
		a.turn = nil
	}()
	limited, cancel := context.WithTimeoutCause(ctx, time.Duration(p.core.turnLimit.Load()), policy.ErrOutOfTime)
	defer cancel()
	for {
		if out, err := p.attempt(ctx, limited, a, handle); out != conflicted || err != nil {
			return out, err
		}
		a.conflicts++
	}
}

// attempt makes one decision on a fresh snapshot, within the context limited,
// and commits it.
func (p *Partition) attempt(ctx, limited context.Context, a *attempt, handle *policy.Handle) (out outcome, err error) {
	again, err := p.snapshot(a)
	if err != nil {
		return decided, err
	}
	if again {
		return anew, nil
	}
	lease := handle.Acquire(a.ask())
	defer lease.Release()
	if err := p.decide(limited, a, &lease); err != nil {
		return decided, err
	}
	a.lookBeside(p)
	if out, err = p.commit(ctx, a); out != decided || err != nil {
		return out, err
	}
	// Only now: a decision that is made again takes with it what its stages
	// wanted to log or to count.
	a.decision.Publish()
	if a.req.Kind != Advisory && a.decision.By != policy.ByPin && a.decision.By != policy.BySession {
		lease.Observe(&a.table, &a.decision)
	}
	return decided, nil
}

// decide runs the leased revision over the snapshot with no lock held.
func (p *Partition) decide(ctx context.Context, a *attempt, rev *policy.Lease) error {
	a.asks(rev)
	if err := rev.CheckOverrides(a.req.Overrides); err != nil {
		return invalid(err)
	}
	a.fill(ctx, p, rev.Columns)
	switch {
	case a.req.Pin != nil && a.table.Len() == 1:
		rev.Fix(&a.table, &a.decision, 0, policy.ByPin)
		return nil
	case p.followsSession(a):
		rev.Fix(&a.table, &a.decision, a.boundRow, policy.BySession)
		return nil
	}
	err := a.letDecide(ctx, rev)
	if errors.Is(err, policy.ErrEmptied) {
		a.decision.Publish() // as below
		e := unavailable(CodeNoCandidates, "the filters of the routing policy leave no worker of model %q", p.key.Model)
		e.Err, e.DecisionID = err, a.sel.DecisionID
		return e
	}
	if fault, ok := errors.AsType[*policy.Fault](err); ok {
		// It ends the request: what the stages logged may tell why.
		a.decision.Publish()
		return &Error{Code: CodePolicyFailed, Message: "the routing policy failed: " + fault.Reason, DecisionID: a.sel.DecisionID, Err: fault}
	}
	return err
}

// commit makes the decision binding if it still holds: the chosen rank's
// version is unchanged or, in a turn and where nothing is booked, the rank is
// still eligible; and somebody is not busy, where the request's class asks for
// that.
func (p *Partition) commit(ctx context.Context, a *attempt) (out outcome, err error) {
	if a.req.Kind == Book {
		err = p.lockForCommit(ctx, a.turn)
	} else {
		p.mu.Lock()
	}
	if err != nil {
		return decided, err
	}
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return decided, context.Cause(ctx)
	}
	row := a.decision.Row
	r := &a.view.rows[a.rows[row]]
	now := p.ranks[r.slot]
	if a.req.Kind == Book && a.turn == nil {
		if p.tracker.Version(r.slot) != a.versions[row] {
			return conflicted, nil
		}
	}
	if now.member == nil || now.member.generation != r.member.generation || now.worker != r.worker ||
		now.member.lifecycle != Ready || !p.adapters.Load().serves(now.member, a.req.Adapter) {
		return conflicted, nil
	}
	if p.overtaken(a, time.Now()) {
		a.view = nil
		return anew, nil
	}
	if out := p.busyByNow(a, r); out != decided {
		a.view = nil // who was passed over may be in reach by now
		return out, nil
	}
	a.answer(p, now, row)
	if a.req.Kind == Book {
		p.book(a, row, now.member.generation)
	}
	p.keepForBooking(a, row, now.member.generation)
	p.leaveQueue(a)
	if a.booked != nil && a.booked.session != nil {
		p.recall(a.req.boundSession(), affinity.Target{Worker: a.sel.Worker, Generation: now.member.generation})
	}
	return decided, nil
}

// answer fills the selection from the record as it is at the commit.
func (a *attempt) answer(p *Partition, r rankState, row int) {
	sel, rec := a.sel, &r.member.record
	sel.Worker, sel.Name, sel.Endpoint, sel.Engine = r.worker, rec.Name, rec.URL, rec.Engine
	sel.Ranks, sel.BlockSize = rec.DPSize, p.blockSize
	sel.By, sel.Policy, sel.Revision = a.decision.By, a.asked.policy, a.asked.revision
	sel.Overlap, sel.PromptTokens, sel.PromptBlocks = a.overlaps[row], a.tokens, a.blockCount
	sel.Detail = a.detail(p, r.member, row)
}

// book puts the load on the rank, binds the session and turns the claim into a
// reservation. The partition's lock is held; nothing here can fail or wait.
func (p *Partition) book(a *attempt, row int, generation uint64) {
	now := time.Now()
	demand := a.demand(row, p.blockSize)
	b := &booking{partition: p, reservation: a.claim.Reservation(), made: now, demand: p.core.replicated(demand)}
	b.adapter = adapterOn{a.sel.Worker.ID, a.req.Adapter}
	p.use(b.adapter, now)
	a.booked = b
	p.tracker.Book(&b.load, a.view.rows[a.rows[row]].slot, demand, b, now)
	b.session = a.hold.Commit(affinity.Target{Worker: a.sel.Worker, Generation: generation}, now)
	a.sel.Reservation = a.claim.Insert(reserve.Key{
		SelectionID: a.sel.ID, Partition: p.key, Worker: a.sel.Worker, Generation: generation, Attempt: a.req.Attempt,
	}, b, p.core.terms(a.req.Leased, now))
}

// terms are when a reservation made now expires.
func (c *SelectionCore) terms(leased bool, now time.Time) reserve.Terms {
	if leased {
		return reserve.Terms{}
	}
	return reserve.Terms{Expires: now.Add(c.cfg.Expiry)}
}
