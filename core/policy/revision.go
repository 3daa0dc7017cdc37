package policy

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// State is what an operator sees of a revision.
type State string

// States of a revision.
const (
	Ready   State = "ready"   // made and kept, not published
	Active  State = "active"  // published in at least one handle
	Tripped State = "tripped" // published, its fallback decides
	Retired State = "retired" // given up; closes with its last call
)

// Revision is an immutable, numbered policy: a specification with every module
// pinned by digest, compiled. It counts references: its maker holds one until
// Retire, each handle that publishes it one, each running decision one. When
// the last goes, whoever let it go closes the stages; no timer does. Safe for
// concurrent use.
type Revision struct {
	name     string
	number   int
	spec     Spec
	digests  []string
	pipeline *Pipeline
	guardOff *atomic.Bool // true: nothing trips

	refs      atomic.Int64
	published atomic.Int64
	retired   atomic.Bool
	closed    chan struct{}
	closeErr  error // written before closed is closed

	guard   guard
	tripped atomic.Bool
	onTrip  func(*Revision, *Fault)
	counts  counts
}

type counts struct {
	mu        sync.Mutex // guards all below
	calls     uint64
	fallbacks uint64
	cleaned   uint64
	abstained uint64
	emptied   uint64
	faults    map[string]uint64
}

// Stats are a revision's counts since it was made.
type Stats struct {
	Calls     uint64            // decisions
	Fallbacks uint64            // of these, made by the fallback
	Cleaned   uint64            // scores that were no opinion
	Abstained uint64            // stage calls without an opinion
	Emptied   uint64            // filters whose verdict dropped every candidate
	Trips     uint64            // times that the guard tripped the revision
	Faults    map[string]uint64 // by reason
}

// RevisionOption changes how a revision behaves.
type RevisionOption func(*Revision)

// GuardSwitch makes a revision that never trips while off is true.
func GuardSwitch(off *atomic.Bool) RevisionOption {
	return func(r *Revision) { r.guardOff = off }
}

// OnTrip calls f once for each trip, on the goroutine of the request whose fault
// it was: f must not block.
func OnTrip(f func(*Revision, *Fault)) RevisionOption {
	return func(r *Revision) { r.onTrip = f }
}

// NewRevision makes a revision from a compiled pipeline, which it owns from now
// on. The caller holds one reference and gives it up by Retire.
func NewRevision(name string, number int, spec Spec, p *Pipeline, digests []string, opts ...RevisionOption) *Revision {
	r := &Revision{
		name: name, number: number, spec: spec, digests: slices.Clone(digests), pipeline: p,
		closed: make(chan struct{}), guardOff: &atomic.Bool{}, counts: counts{faults: map[string]uint64{}},
	}
	for _, o := range opts {
		o(r)
	}
	r.refs.Store(1)
	return r
}

// Name is the policy's name.
func (r *Revision) Name() string { return r.name }

// Number is the revision's number within its policy, from 1.
func (r *Revision) Number() int { return r.number }

// Spec is the specification. The caller must not change what it points to.
func (r *Revision) Spec() Spec { return r.spec }

// Digests are the digests of the modules. The caller must not change them.
func (r *Revision) Digests() []string { return r.digests }

// Columns is what a table must hold for this revision and its fallback.
func (r *Revision) Columns() ColumnSet { return r.pipeline.columns }

// Stages names the stages as Pipeline.Stages does.
func (r *Revision) Stages() []StageName { return r.pipeline.Stages() }

// State tells what the revision is doing.
func (r *Revision) State() State {
	switch {
	case r.retired.Load():
		return Retired
	case r.tripped.Load():
		return Tripped
	case r.published.Load() > 0:
		return Active
	}
	return Ready
}

// CheckOverrides refuses per-request overrides that would not reach a scorer or
// are out of range, with a *fleet.FieldError.
func (r *Revision) CheckOverrides(overrides map[string]json.RawMessage) error {
	if len(overrides) == 0 {
		return nil
	}
	return r.pipeline.checkOverrides(overrides)
}

// Decide picks a row of t, which must have at least one. A fault is answered
// by the fallback, among the rows that the filters before it have kept, and
// reported in d, unless the stage's on_error says otherwise; with "fail" the
// *Fault is the error. A filter that must not drop every candidate and did is an
// *EmptiedError. With these two errors d tells how far the pipeline came. When
// ctx ends by ErrOutOfTime the fallback decides; when it ends otherwise its cause
// is the error and d is not to be read. The caller holds a reference.
func (r *Revision) Decide(ctx context.Context, t *Table, d *Decision) error {
	if r.tripped.Load() {
		d.reset(t, r.pipeline.scoring())
		r.pipeline.decideByFallback(ctx, t, d)
		r.count(d)
		return nil
	}
	err := r.pipeline.run(ctx, t, d)
	failure, failed := errors.AsType[*stageFailure](err)
	emptied, abstained := errors.Is(err, ErrEmptied), errors.Is(err, errNoOpinion)
	if err != nil && !failed && !emptied && !abstained {
		return err
	}
	at := t.At
	if at.IsZero() || d.Fault != nil { // a fault may have taken long
		at = time.Now()
	}
	if d.Tripped = r.guard.note(at, d.Fault, r.guardOff.Load()); d.Tripped {
		r.tripped.Store(true)
		if r.onTrip != nil {
			r.onTrip(r, d.Fault)
		}
	}
	switch {
	case emptied:
		r.count(d)
		return err
	case failed && failure.onError == onErrorFail:
		r.count(d)
		return failure.fault
	case failed || abstained:
		r.pipeline.decideByFallback(ctx, t, d)
	}
	r.count(d)
	return nil
}

// Fix fills d for the choice of a row of t that the policy was not asked for.
func (r *Revision) Fix(t *Table, d *Decision, row int, by By) {
	d.reset(t, r.pipeline.scoring())
	d.Row, d.By, d.Tie.Rows = row, by, 1
}

// Replay decides as Decide does, but outside the traffic: the guard and the
// counts do not hear of it, a tripped revision is asked all the same, and a
// fault is left as the error instead of being answered by the fallback, which
// decides only where the whole policy abstains. d is filled as far as the
// pipeline came. t is made quiet.
func (r *Revision) Replay(ctx context.Context, t *Table, d *Decision) error {
	return r.replay(ctx, t, d, -1)
}

// ReplayFallback decides by the fallback alone, outside the traffic: the counts
// do not hear of it. Where Replay has just returned a fault for t and d, which are
// as it left them, it decides as Decide does after that fault, among the rows that
// the filters before it have kept; else as a tripped revision does, which asks no
// filter.
func (r *Revision) ReplayFallback(ctx context.Context, t *Table, d *Decision) {
	t.Quiet = true
	if d.Fault == nil || len(d.Totals) != t.Len() {
		d.reset(t, r.pipeline.scoring())
	}
	r.pipeline.decideByFallback(ctx, t, d)
}

// replay is Replay as if the scorer of that number were not there; -1 leaves
// none out.
func (r *Revision) replay(ctx context.Context, t *Table, d *Decision, without int) error {
	t.Quiet = true
	err := r.pipeline.runWithout(ctx, t, d, without)
	if failure, ok := errors.AsType[*stageFailure](err); ok {
		return failure.fault
	}
	if errors.Is(err, errNoOpinion) {
		r.pipeline.decideByFallback(ctx, t, d)
		return nil
	}
	return err
}

// Trip lets the fallback decide from now on, for a reason that lies outside the
// revision's own calls. OnTrip does not hear of it.
func (r *Revision) Trip() { r.tripped.Store(true) }

// Retry lets the operator give a tripped revision another chance.
func (r *Revision) Retry() {
	r.guard.reset(false)
	r.tripped.Store(false)
}

// HalfOpen lets a tripped revision decide again on probation: the first fault
// that the guard counts trips it at once, until as many calls were good as the
// guard's rate wants to see.
func (r *Revision) HalfOpen() {
	r.guard.reset(true)
	r.tripped.Store(false)
}

// Stats returns the revision's counts.
func (r *Revision) Stats() Stats {
	r.guard.mu.Lock()
	trips := r.guard.trips
	r.guard.mu.Unlock()
	r.counts.mu.Lock()
	defer r.counts.mu.Unlock()
	c := &r.counts
	return Stats{
		Calls: c.calls, Fallbacks: c.fallbacks, Cleaned: c.cleaned, Abstained: c.abstained, Emptied: c.emptied,
		Trips: trips, Faults: maps.Clone(c.faults),
	}
}

// Release gives up a reference from Handle.Acquire.
func (r *Revision) Release() {
	if r.refs.Add(-1) != 0 {
		return
	}
	r.closeErr = r.pipeline.close()
	close(r.closed)
}

// Retire gives up the maker's reference: the revision closes as soon as no
// handle publishes it and its last call has ended. Further calls do nothing.
func (r *Revision) Retire() {
	if !r.retired.Swap(true) {
		r.Release()
	}
}

// Closed is closed once the stages are; then CloseErr tells how that went.
func (r *Revision) Closed() <-chan struct{} { return r.closed }

// CloseErr is what closing the stages returned; nil before Closed.
func (r *Revision) CloseErr() error {
	select {
	case <-r.closed:
		return r.closeErr
	default:
		return nil
	}
}

// acquire takes a reference unless the last one has gone.
func (r *Revision) acquire() bool {
	for {
		n := r.refs.Load()
		if n == 0 {
			return false
		}
		if r.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (r *Revision) count(d *Decision) {
	c := &r.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.cleaned += uint64(d.Cleaned)
	c.abstained += uint64(d.Abstained)
	c.emptied += uint64(d.Emptied)
	if d.By == ByFallback {
		c.fallbacks++
	}
	if d.Fault != nil {
		c.faults[d.Fault.Reason]++
	}
}
