package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// Two-phase booking: a query under a selection id is kept for a while, and the
// caller books it, or another worker, in a call of its own.

// chosen is a selection that waits for its booking.
type chosen struct {
	partition  *Partition
	generation uint64
	session    string
	adapter    string
	demand     load.Demand
	selection  Selection
}

// keepForBooking keeps what a query under a selection id has chosen. mu must be
// held.
func (p *Partition) keepForBooking(a *attempt, row int, generation uint64) {
	if a.req.Kind != Query || a.req.SelectionID == "" {
		return
	}
	c := &chosen{partition: p, generation: generation, adapter: a.req.Adapter, demand: a.demand(row, p.blockSize), selection: *a.sel}
	if a.req.Pin == nil && a.req.Target == nil {
		c.session = a.req.session()
	}
	c.demand.Blocks = slices.Clone(c.demand.Blocks)
	const fixed = 512
	size := int64(fixed + len(c.session) + len(a.sel.ID) + 8*len(c.demand.Blocks))
	p.core.pending.Put(reserve.PendingKey{Partition: p.key, ID: a.sel.ID}, c, size, time.Now())
}

// Booking is what Reserve books.
type Booking struct {
	// SelectionID names the booking. Without a worker it names the selection that
	// was made under it.
	SelectionID string
	Partition   fleet.PartitionKey
	// Worker and Rank, when Worker is not nil, are where the caller sends the
	// request, whatever was selected; Rank is the first one when nil.
	Worker *fleet.WorkerID
	Rank   *uint32
	// Prompt, Adapter, ExpectedOutput and the tokens that are not cached there are
	// what the worker gets to do; only of a booking that names its worker.
	Prompt  Prompt
	Adapter string
	// Uncached is nil for the whole prompt, and at most its length.
	Uncached *int
	// Session is the session to bind, empty for none.
	Session string
	Leased  bool
}

// fieldSession names the session in what Reserve refuses.
const fieldSession = "session_id"

// Reserve books a worker that was chosen before: the one of the selection that a
// query was kept under, or the one that the booking names. That a worker has left
// or no longer serves, an id that is in use and a session that is bound elsewhere
// by now are conflicts, after which, but for the last, the kept selection is still
// there; where nothing is kept it is a not_found. It waits for nothing.
func (c *SelectionCore) Reserve(ctx context.Context, b *Booking) (*Selection, error) {
	if c.closed.Load() {
		return nil, ending()
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if b.SelectionID == "" || len(b.SelectionID) > MaxIDBytes {
		return nil, invalid(&fleet.FieldError{Field: "selection_id", Value: b.SelectionID, Allowed: "1 to 256 bytes"})
	}
	if err := affinity.CheckID("session_id", b.Session); err != nil {
		return nil, invalid(err)
	}
	key := reserve.PendingKey{Partition: b.Partition.Normalised(), ID: b.SelectionID}
	kept, explicit := (*chosen)(nil), b.Worker != nil
	if explicit {
		var err error
		if kept, err = c.explicit(b, key.Partition); err != nil {
			return nil, err
		}
		c.pending.Discard(key)
	} else {
		var ok bool
		if kept, ok = c.pending.Peek(key, time.Now()); !ok {
			return nil, &Error{Code: CodeNotFound, Field: "selection_id", Message: fmt.Sprintf("no pending selection %q: expired, already used, or never selected", clip(b.SelectionID, 80))}
		}
	}
	sel, err := kept.book(c, b)
	if err == nil && !explicit {
		c.pending.Consume(key, kept)
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Field == fieldSession {
		c.pending.Discard(key) // it will not become right again
	}
	return sel, err
}

// explicit is the choice of a caller that names its worker.
func (c *SelectionCore) explicit(b *Booking, key fleet.PartitionKey) (*chosen, error) {
	p := c.directory.Load().partitions[key]
	if p == nil {
		return nil, &Error{Code: CodeModelNotFound, Message: "model " + strconv.Quote(clip(key.Model, 80)) + " does not exist", Field: "model"}
	}
	m := p.view.Load().byID[*b.Worker]
	if m == nil {
		return nil, &Error{Code: CodePinUnknown, Message: fmt.Sprintf("worker %s is not known", b.Worker), Field: "worker_id"}
	}
	rank := uint32(m.record.DPStart)
	if b.Rank != nil {
		rank = *b.Rank
	}
	for _, n := range []int{b.Prompt.Count, b.Prompt.More} {
		if n < 0 || n > math.MaxInt32 {
			return nil, invalid(&fleet.FieldError{Field: "isl_tokens", Value: strconv.Itoa(n), Allowed: "0 to 2147483647"})
		}
	}
	a := p.take()
	defer p.give(a)
	a.req = &Request{Prompt: b.Prompt, Adapter: b.Adapter}
	if err := a.readPrompt(p); err != nil {
		return nil, err
	}
	uncached := a.tokens
	if b.Uncached != nil {
		if uncached = *b.Uncached; uncached < 0 || uncached > a.tokens {
			return nil, invalid(&fleet.FieldError{Field: "effective_prefill_tokens", Value: strconv.Itoa(uncached), Allowed: fmt.Sprintf("0 to %d, the prompt's length", a.tokens)})
		}
	}
	return &chosen{
		partition: p, generation: m.generation, session: b.Session, adapter: b.Adapter,
		demand: load.PromptDemand(int64(a.tokens), int64(a.tokens-uncached), p.blockSize, slices.Clone(a.sequences)),
		selection: Selection{
			ID: b.SelectionID, Partition: key, Worker: fleet.Worker{ID: *b.Worker, Rank: rank}, BlockSize: p.blockSize,
			By: policy.ByPin, PromptTokens: a.tokens, PromptBlocks: a.blockCount, Overlap: kvcache.Overlap{},
		},
	}, nil
}

// book books what was chosen, if that still can serve.
func (k *chosen) book(c *SelectionCore, b *Booking) (*Selection, error) {
	p, sel, now := k.partition, k.selection, time.Now()
	claim, ok := c.reservations.Claim(b.SelectionID)
	if !ok {
		return nil, conflict(b.SelectionID)
	}
	target := affinity.Target{Worker: sel.Worker, Generation: k.generation}
	var hold affinity.Hold
	if k.session != "" {
		hold = p.sessions.Take(k.session, now)
	}
	if hold.State() == affinity.Bound && hold.Target() != target && !p.core.soft.Load() {
		if m := p.view.Load().byID[hold.Target().Worker.ID]; m != nil && m.generation == hold.Target().Generation {
			hold.Abandon(now)
			claim.Abandon()
			return nil, &Error{Code: CodeConflict, Field: fieldSession, Message: fmt.Sprintf("the session is bound to worker %q", m.record.Name)}
		}
	}
	p.mu.Lock()
	slot, known := p.slotOf[sel.Worker]
	var r rankState
	if known {
		r = p.ranks[slot]
	}
	if !known || r.member.generation != k.generation || r.member.lifecycle != Ready || !p.adapters.Load().serves(r.member, k.adapter) {
		p.mu.Unlock()
		hold.Abandon(now)
		claim.Abandon()
		return nil, &Error{Code: CodeConflict, Field: "worker_id", Message: fmt.Sprintf("worker %s no longer serves model %q", sel.Worker, p.key.Model)}
	}
	bk := &booking{
		partition: p, reservation: claim.Reservation(), made: now, demand: c.replicated(k.demand), adapter: adapterOn{sel.Worker.ID, k.adapter},
	}
	p.tracker.Book(&bk.load, slot, k.demand, bk, now)
	p.use(bk.adapter, now)
	bk.session = hold.Commit(target, now)
	sel.Name, sel.Endpoint, sel.Engine, sel.Ranks = r.member.record.Name, r.member.record.URL, r.member.record.Engine, r.member.record.DPSize
	sel.Reservation = claim.Insert(reserve.Key{SelectionID: sel.ID, Partition: p.key, Worker: sel.Worker, Generation: k.generation}, bk, c.terms(b.Leased, now))
	p.mu.Unlock()
	bk.tellBooked()
	return &sel, nil
}
