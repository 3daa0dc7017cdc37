package core

import (
	"context"
	"fmt"
	"maps"
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

// Two-phase booking: what a request that books nothing chose under a selection id is kept
// for a while, and the caller books it, or another worker, in a call of its own.

// chosen is a selection that waits for its booking.
type chosen struct {
	partition  *Partition
	generation uint64
	session    string // of the request; empty for none
	binds      bool   // whether the booking takes the session
	adapter    string
	demand     load.Demand
	blocks     []kvcache.BlockHash // of the prompt
	exact      bool                // they are those of its tokens
	selection  Selection

	// What may have kept the request from the worker of its session.
	constraints Constraints
	excluded    []fleet.WorkerID
	passed      affinity.Target // see passedBy; zero for none
}

// keepForBooking keeps what a request under a selection id that books nothing has chosen.
// mu must be held.
func (p *Partition) keepForBooking(a *attempt, row int, generation uint64) {
	req := a.req
	if req.Kind == Book || req.SelectionID == "" {
		return
	}
	c := &chosen{
		partition: p, generation: generation, session: req.boundSession(), adapter: req.Adapter, demand: a.demand(row, p.blockSize), selection: *a.sel,
		constraints: req.Constraints.required(),
	}
	c.binds = c.session != "" && req.Pin == nil && req.Target == nil
	c.demand.Blocks, c.blocks = slices.Clone(c.demand.Blocks), slices.Clone(a.recorded())
	c.exact = a.recordedExactly()
	c.selection.Detail = nil // it is the caller's
	for _, w := range req.Exclude {
		c.excluded = append(c.excluded, w.ID)
	}
	now := time.Now()
	if c.binds && a.unsteered && !p.wasOutOfReach(a) {
		c.passed = p.passedBy(a, c.session, now)
	}
	p.core.pending.Put(reserve.PendingKey{Partition: p.key, ID: a.sel.ID}, c, c.size(), now)
}

// passedBy is the binding that a request goes past for what cannot be looked at
// again when it is booked: the replica set of its adapter, and what the host says.
// mu must be held.
func (p *Partition) passedBy(a *attempt, session string, now time.Time) affinity.Target {
	bound, ok := p.sessions.Lookup(session, now)
	m := a.view.byID[bound.Worker.ID]
	switch {
	case !ok || p.lost(&bound, m, now), a.failedOn(&bound), !a.placed.serves(m, a.req.Adapter), !a.req.Constraints.met(&m.record),
		a.req.Allow != nil && !a.allowed[a.view.index(m)],
		slices.ContainsFunc(a.rows, func(row int32) bool { return a.view.rows[row].worker == bound.Worker }):
		return affinity.Target{} // no, or for a reason that is looked at again
	}
	return bound
}

// required is a copy of what a worker must have.
func (c *Constraints) required() Constraints {
	return Constraints{RequiredTaints: slices.Clone(c.RequiredTaints), RequiredLabels: maps.Clone(c.RequiredLabels)}
}

// size is about what a kept selection holds in memory.
func (k *chosen) size() int64 {
	const fixed, each = 640, 16
	n := fixed + len(k.session) + len(k.adapter) + len(k.selection.ID) + 8*(len(k.demand.Blocks)+len(k.blocks)+len(k.excluded))
	for _, taint := range k.constraints.RequiredTaints {
		n += each + len(taint)
	}
	for key, value := range k.constraints.RequiredLabels {
		n += 4*each + len(key) + len(value)
	}
	return int64(n)
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
	// Prompt, Adapter and Uncached, the prompt tokens that are not cached there, are
	// what the worker gets to do; only of a booking that names its worker. Uncached
	// is nil for the whole prompt, and at most its length.
	Prompt   Prompt
	Adapter  string
	Uncached *int
	// AssumeReuse and TrackPrefill are as those of a Request; only of a booking that
	// names its worker.
	AssumeReuse, TrackPrefill *bool
	// Session is the session to bind, empty for none; of a booking without a worker
	// it is empty or the session of the selection, which is bound in either case.
	Session string
	Leased  bool
}

// The fields of a Booking that errors name.
const (
	fieldSelection = "selection_id"
	fieldSession   = "session_id"
	fieldWorker    = "worker_id"
	fieldRank      = "dp_rank"
)

// Reserve books a worker that was chosen before: the one of the selection that a
// query was kept under, or the one that the booking names. Once it has booked, a
// selection that was kept under the id is gone; otherwise it stays. That a worker
// has left or no longer serves, an id that is in use and a session that is bound
// elsewhere by now are conflicts, and the last drops what was kept: it will not
// become right again. Where nothing is kept it is a not_found. What Reserve returns
// has no Detail.
//
// A session that is bound elsewhere is treated as in Select: from a worker that is
// not ready or not in reach it moves to the one that is booked; where its worker
// lacks what the request requires it stays where it is, and so does the booking.
// It waits for nothing.
func (c *SelectionCore) Reserve(ctx context.Context, b *Booking) (*Selection, error) {
	if c.closed.Load() {
		return nil, ending()
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if b.SelectionID == "" || len(b.SelectionID) > MaxIDBytes {
		return nil, invalid(&fleet.FieldError{Field: fieldSelection, Value: b.SelectionID, Allowed: "1 to 256 bytes"})
	}
	if err := affinity.CheckID(fieldSession, b.Session); err != nil {
		return nil, invalid(err)
	}
	key := reserve.PendingKey{Partition: b.Partition.Normalised(), ID: b.SelectionID}
	k, err := c.choice(b, key)
	if err != nil {
		return nil, err
	}
	claim, ok := c.reservations.Claim(b.SelectionID)
	if !ok {
		return nil, conflict(b.SelectionID)
	}
	var bk *booking
	defer func() {
		if bk == nil {
			claim.Abandon()
		}
	}()
	if b.Worker == nil { // somebody may have booked it meanwhile; with the claim nobody else can
		if k, err = c.kept(b, key); err != nil {
			return nil, err
		}
	}
	sel, made, err := k.book(b, key, claim)
	if err != nil {
		return nil, err
	}
	bk = made
	bk.tellBooked()
	k.partition.learn(sel.Worker, sel.Reservation.Key().Generation, k.blocks, k.exact)
	return sel, nil
}

// choice is what is to be booked.
func (c *SelectionCore) choice(b *Booking, key reserve.PendingKey) (*chosen, error) {
	if b.Worker != nil {
		return c.explicit(b, key.Partition)
	}
	return c.kept(b, key)
}

// kept is the selection that a booking without a worker names.
func (c *SelectionCore) kept(b *Booking, key reserve.PendingKey) (*chosen, error) {
	k, ok := c.pending.Peek(key, time.Now())
	if !ok {
		return nil, &Error{Code: CodeNotFound, Field: fieldSelection, Message: fmt.Sprintf("no pending selection %q: expired, already used, or never selected", clip(b.SelectionID, 80))}
	}
	switch {
	case b.Rank != nil:
		return nil, invalid(&fleet.FieldError{Field: fieldRank, Value: strconv.FormatUint(uint64(*b.Rank), 10), Allowed: "only together with worker_id"})
	case b.Session != "" && b.Session != k.session:
		return nil, invalid(&fleet.FieldError{Field: fieldSession, Value: b.Session, Allowed: "the session that the selection was made for, or none"})
	}
	return k, nil
}

// explicit is the choice of a caller that names its worker.
func (c *SelectionCore) explicit(b *Booking, key fleet.PartitionKey) (*chosen, error) {
	p, a, err := c.enter(key)
	if err != nil {
		return nil, err
	}
	defer p.give(a)
	v := p.view.Load()
	m := v.byID[*b.Worker]
	switch {
	case len(v.rows) == 0:
		return nil, noWorkers(key)
	case m == nil:
		return nil, &Error{Code: CodePinUnknown, Message: fmt.Sprintf("worker %s is not known", b.Worker), Field: fieldWorker}
	}
	rank := uint32(m.record.DPStart)
	if b.Rank != nil {
		if rank = *b.Rank; !slices.Contains(m.record.Ranks(), rank) {
			return nil, &Error{
				Code: CodePinUnknown, Field: fieldRank,
				Message: fmt.Sprintf("worker %s has no rank %d; it has ranks %d to %d", b.Worker, rank, m.record.DPStart, m.record.DPStart+m.record.DPSize-1),
			}
		}
	}
	for _, n := range []int{b.Prompt.Count, b.Prompt.More} {
		if n < 0 || n > math.MaxInt32 {
			return nil, invalid(&fleet.FieldError{Field: "isl_tokens", Value: strconv.Itoa(n), Allowed: "0 to 2147483647"})
		}
	}
	a.req = &Request{Prompt: b.Prompt, Adapter: b.Adapter, AssumeReuse: b.AssumeReuse, TrackPrefill: b.TrackPrefill}
	if err := a.readPrompt(p); err != nil {
		return nil, err
	}
	uncached := a.tokens
	if b.Uncached != nil {
		if uncached = *b.Uncached; uncached < 0 || uncached > a.tokens {
			return nil, invalid(&fleet.FieldError{Field: "effective_prefill_tokens", Value: strconv.Itoa(uncached), Allowed: fmt.Sprintf("0 to %d, the prompt's length", a.tokens)})
		}
	}
	demand := a.demandOf(int64(a.tokens-uncached), p.blockSize)
	demand.Blocks = slices.Clone(demand.Blocks)
	return &chosen{
		partition: p, generation: m.generation, session: b.Session, binds: b.Session != "", adapter: b.Adapter, demand: demand,
		blocks: slices.Clone(a.recorded()), exact: a.recordedExactly(),
		selection: Selection{
			ID: b.SelectionID, Partition: key, Worker: fleet.Worker{ID: *b.Worker, Rank: rank}, BlockSize: p.blockSize,
			By: policy.ByPin, PromptTokens: a.tokens, PromptBlocks: a.blockCount, Overlap: kvcache.Overlap{},
		},
	}, nil
}

// book books what was chosen, if that still can serve, under the claim of its id.
func (k *chosen) book(b *Booking, key reserve.PendingKey, claim reserve.Claim) (*Selection, *booking, error) {
	p, c, sel := k.partition, k.partition.core, k.selection
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	slot, known := p.slotOf[sel.Worker]
	var m *member
	if known {
		m = p.ranks[slot].member
	}
	if len(p.view.Load().rows) == 0 {
		return nil, nil, noWorkers(p.key)
	}
	if m == nil || m.generation != k.generation || m.lifecycle != Ready || !p.adapters.Load().serves(m, k.adapter) {
		return nil, nil, &Error{Code: CodeConflict, Field: fieldWorker, Message: fmt.Sprintf("worker %s no longer serves model %q", sel.Worker, p.key.Model)}
	}
	target := affinity.Target{Worker: sel.Worker, Generation: k.generation}
	hold, err := k.takeSession(target, now)
	if err != nil {
		c.pending.Consume(key, k) // it will not become right again
		return nil, nil, err
	}
	if b.Worker == nil {
		c.pending.Consume(key, k)
	} else {
		c.pending.Discard(key) // the caller has made up its mind
	}
	bk := &booking{
		partition: p, reservation: claim.Reservation(), made: now, demand: c.replicated(k.demand), adapter: adapterOn{sel.Worker.ID, k.adapter},
	}
	p.tracker.Book(&bk.load, slot, k.demand, bk, now)
	p.use(bk.adapter, now)
	bk.session = hold.Commit(target, now)
	sel.Name, sel.Endpoint, sel.Engine, sel.Ranks = m.record.Name, m.record.URL, m.record.Engine, m.record.DPSize
	sel.Reservation = claim.Insert(reserve.Key{SelectionID: sel.ID, Partition: p.key, Worker: sel.Worker, Generation: k.generation}, bk, c.terms(b.Leased, now))
	if bk.session != nil {
		p.recall(k.session, target) // who waits for the session's old worker follows
	}
	return &sel, bk, nil
}

// overtaken tells whether the session of a request was bound by somebody else while
// it decided: Reserve waits for no initialiser, and moves what another one follows.
// Unless bindings are advice the request takes the session again. mu must be held.
func (p *Partition) overtaken(a *attempt, now time.Time) bool {
	switch {
	case a.req.Kind != Book:
		return false
	case a.hold.State() == affinity.Initialising && !p.core.soft.Load():
		if _, bound := p.sessions.Lookup(a.req.boundSession(), now); !bound {
			return false
		}
		a.hold.Abandon(now) // of no effect on the binding
		return true
	}
	return a.hold.State() == affinity.Bound && a.exclusive && p.movedOn(a, now)
}

// takeSession takes the session of a booking on target, by the rules of steer. An
// unpinned hold leaves the session alone. mu must be held.
func (k *chosen) takeSession(target affinity.Target, now time.Time) (affinity.Hold, error) {
	p := k.partition
	if !k.binds {
		return affinity.Hold{}, nil
	}
	hold := p.sessions.Take(k.session, now)
	bound := hold.Target()
	if hold.State() != affinity.Bound || bound == target || p.core.soft.Load() {
		return hold, nil
	}
	m := p.view.Load().byID[bound.Worker.ID]
	switch {
	case p.lost(&bound, m, now), slices.Contains(k.excluded, bound.Worker.ID):
		return hold, nil // it moves
	case bound == k.passed, !p.adapters.Load().serves(m, k.adapter), !k.constraints.met(&m.record):
		hold.Abandon(now)
		return affinity.Hold{}, nil
	}
	hold.Abandon(now)
	return affinity.Hold{}, &Error{Code: CodeConflict, Field: fieldSession, Message: fmt.Sprintf("the session is bound to worker %q", m.record.Name)}
}
