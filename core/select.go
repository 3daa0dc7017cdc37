package core

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
)

// conflictsBeforeTurn is how often a decision is made void before the request
// takes a turn.
const conflictsBeforeTurn = 2

// Select makes one selection. For a Book it reserves: after that nothing can
// fail, and the caller owns the reservation. Errors are *Error, or the cause of
// ctx when that ended before a booking was made. It blocks only for a turn and
// for what the policy does.
func (c *SelectionCore) Select(ctx context.Context, req *Request) (*Selection, error) {
	if c.closed.Load() {
		return nil, unavailable(CodeNotReady, "the router is shutting down")
	}
	if err := req.check(); err != nil {
		return nil, err
	}
	key := req.Partition.Normalised()
	p := c.directory.Load().partitions[key]
	if p == nil {
		return nil, &Error{Code: CodeModelNotFound, Message: "model " + strconv.Quote(clip(key.Model, 80)) + " does not exist", Field: "model"}
	}
	a := p.take()
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
	if a.req.Kind != Book {
		if err := p.run(ctx, a, sel, reserve.Claim{}); err != nil {
			return nil, err
		}
		return sel, nil
	}
	claim, ok := p.core.reservations.Claim(sel.ID)
	if !ok {
		return nil, conflict(sel.ID)
	}
	if err := p.run(ctx, a, sel, claim); err != nil {
		claim.Abandon()
		return nil, err
	}
	return sel, nil
}

// run decides until a decision can be committed, in the end in a turn of its
// own.
func (p *Partition) run(ctx context.Context, a *attempt, sel *Selection, claim reserve.Claim) error {
	handle, err := p.classHandle(a.req.Class)
	if err != nil {
		return &Error{Code: CodePolicyFailed, Message: "no policy for this request", Err: err}
	}
	for a.req.Kind != Book || a.conflicts < conflictsBeforeTurn {
		if err := p.attempt(ctx, a, handle); err != nil {
			return err
		}
		if done, err := p.commit(ctx, a, sel, claim); done || err != nil {
			return err
		}
		a.conflicts++
	}
	if a.turn, err = p.takeTurn(ctx, a.ticket); err != nil {
		return err
	}
	defer p.leaveTurn(a.turn)
	limited, cancel := context.WithTimeoutCause(ctx, p.core.cfg.TurnLimit, policy.ErrOutOfTime)
	defer cancel()
	for {
		if err := p.attempt(limited, a, handle); err != nil {
			return err
		}
		if done, err := p.commit(ctx, a, sel, claim); done || err != nil {
			return err
		}
		a.conflicts++
	}
}

// attempt makes one decision on a fresh snapshot.
func (p *Partition) attempt(ctx context.Context, a *attempt, handle *policy.Handle) error {
	if err := p.snapshot(a); err != nil {
		return err
	}
	return p.decide(ctx, a, handle)
}

// decide runs the active revision over the snapshot with no lock held.
func (p *Partition) decide(ctx context.Context, a *attempt, handle *policy.Handle) error {
	rev := handle.Acquire(policy.Ask{Seed: a.seed, Session: a.req.Session})
	defer rev.Release()
	a.policy, a.revision, a.digests = rev.Name(), rev.Number(), rev.Digests()
	if err := rev.CheckOverrides(a.req.Overrides); err != nil {
		return invalid(err)
	}
	a.fill(ctx, p, rev.Columns)
	if a.req.Pin != nil && a.table.Len() == 1 {
		rev.Fix(&a.table, &a.decision, 0, policy.ByPin)
		return nil
	}
	err := rev.Decide(ctx, &a.table, &a.decision)
	if fault, ok := errors.AsType[*policy.Fault](err); ok {
		return &Error{Code: CodePolicyFailed, Message: "the routing policy failed: " + fault.Reason, Err: fault}
	}
	return err
}

// commit makes the decision binding if it still holds: the chosen rank's
// version is unchanged or, in a turn and where nothing is booked, the rank is
// still eligible. done is false when the request has to decide again.
func (p *Partition) commit(ctx context.Context, a *attempt, sel *Selection, claim reserve.Claim) (done bool, err error) {
	if a.req.Kind == Book {
		err = p.lockForCommit(ctx, a.turn)
	} else {
		p.mu.Lock()
	}
	if err != nil {
		return false, err
	}
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, context.Cause(ctx)
	}
	row := a.decision.Row
	r := &a.view.rows[a.rows[row]]
	now := p.ranks[r.slot]
	if a.req.Kind == Book && a.turn == nil {
		if _, version := p.tracker.Load(r.slot); version != a.versions[row] {
			return false, nil
		}
	}
	if now.member == nil || now.member.generation != r.member.generation || now.worker != r.worker ||
		now.member.lifecycle != Ready || !now.member.serves(a.req.Adapter) {
		return false, nil
	}
	a.answer(sel, p, now, row)
	if a.req.Kind == Book {
		p.book(a, sel, claim, row, now.member.generation)
	}
	return true, nil
}

// answer fills the selection from the record as it is at the commit.
func (a *attempt) answer(sel *Selection, p *Partition, r rankState, row int) {
	rec := &r.member.record
	sel.Worker, sel.Name, sel.Endpoint, sel.Engine = r.worker, rec.Name, rec.URL, rec.Engine
	sel.Ranks, sel.BlockSize = rec.DPSize, p.blockSize
	sel.By, sel.Policy, sel.Revision = a.decision.By, a.policy, a.revision
	sel.Overlap, sel.PromptTokens, sel.PromptBlocks = a.overlaps[row], a.tokens, a.blockCount
}

// book puts the load on the rank and turns the claim into a reservation. The
// partition's lock is held; nothing here can fail.
func (p *Partition) book(a *attempt, sel *Selection, claim reserve.Claim, row int, generation uint64) {
	b := &booking{partition: p, reservation: claim.Reservation(), made: time.Now()}
	slot := a.view.rows[a.rows[row]].slot
	p.tracker.Book(&b.load, slot, a.demand(row, p.blockSize), b)
	sel.Reservation = claim.Insert(reserve.Key{
		SelectionID: sel.ID, Partition: p.key, Worker: sel.Worker, Generation: generation, Attempt: a.req.Attempt,
	}, b)
}

// report records the decision and tells telemetry how the selection ended.
func (p *Partition) report(a *attempt, sel *Selection, err error) {
	elapsed := time.Since(a.started)
	e := DecisionEvent{
		Partition: p.key, Kind: a.req.Kind, Surface: a.req.Surface, Policy: a.policy, Revision: a.revision,
		Candidates: len(a.rows), Conflicts: a.conflicts, Turn: a.turn != nil, Elapsed: elapsed,
	}
	if a.policy != "" {
		e.Fuel = a.decision.Fuel
		if f := a.decision.Fault; f != nil {
			e.FaultReason, e.FaultCode = f.Reason, f.Code
			p.logFault(a, f)
		}
	}
	if err == nil {
		e.By = sel.By
		p.core.decisions.add(p, a, sel, elapsed)
	} else if ce, ok := errors.AsType[*Error](err); ok {
		e.Code = ce.Code
	}
	p.core.host.Telemetry.Decided(&e)
}

// logFault tells the operator once that a revision has tripped, and everything
// else to whoever debugs. The stage's own words stay in the decision record.
func (p *Partition) logFault(a *attempt, f *policy.Fault) {
	log := p.core.log.With("partition", p.key.String(), "policy", a.policy, "revision", a.revision, "plugin", f.Stage, "reason", f.Reason)
	if a.decision.Tripped {
		log.Warn("policy tripped: its fallback decides from now on")
		return
	}
	log.Debug("policy faulted")
}

// decisionID is unique within the process and tells the request's id, if it has
// one.
func (a *attempt) decisionID() string {
	n := strconv.FormatUint(a.number, 36)
	if a.req.RequestID == "" {
		return "d." + n
	}
	return a.req.RequestID + "." + n
}
