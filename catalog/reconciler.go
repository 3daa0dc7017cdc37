package catalog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// Reconciler makes the core's workers equal to what all sources want. It is
// safe for concurrent use.
type Reconciler struct {
	core      Core
	listeners Listeners
	sizes     BlockSizes
	log       *slog.Logger
	probes    chan struct{} // holds one for each engine that is asked

	// planning is held from the check of a list to the end of its withdrawals, so
	// that a worker that one source drops and another brings never overlap.
	planning sync.Mutex

	mu      sync.Mutex // guards entries and, in each, the fields above op
	entries map[fleet.WorkerID]*entry
}

// entry is one wanted worker.
type entry struct {
	source    string
	want      fleet.Record
	round     uint64 // rises with each change of want, so that a late preparation is noticed
	pending   bool   // whether no attempt told yet how want does
	attempt   *attempt
	lifecycle core.Lifecycle
	reasons   []string
	failures  int
	retryAt   time.Time

	op        sync.Mutex         // guards what has been applied: the fields below
	committed fleet.PartitionKey // where the core has it; zero when nowhere
	listening map[uint32]Listening
	record    atomic.Pointer[fleet.Record] // what the subscriptions read; safe without op
}

// tried tells whether an attempt for what is wanted now is under way.
func (e *entry) tried() bool { return e.attempt != nil && e.attempt.round == e.round }

// New makes a Reconciler without workers.
func New(c Core, l Listeners, s BlockSizes, log *slog.Logger) *Reconciler {
	return &Reconciler{
		core: c, listeners: l, sizes: s, log: log,
		probes: make(chan struct{}, maxProbes), entries: map[fleet.WorkerID]*entry{},
	}
}

// ConflictError refuses a list of workers: two of them claim one thing.
type ConflictError struct {
	Field  string // id, name, url or adapter
	Value  string
	Holder string // who has it
}

// Error names the field, the value and who has it.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s %q is taken by %s", e.Field, e.Value, e.Holder)
}

// ForeignError refuses to change or remove a worker that another source brought.
type ForeignError struct{ Worker, Source string }

// Error names the worker and where it has to be done.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("worker %q comes from the source %q (file: workers.static of the configuration); change or remove it there", e.Worker, e.Source)
}

// Check tells whether Apply would take the list: records must be normalised
// (fleet.Record.Normalised), and neither they nor another source's workers may
// share an id, a name or an endpoint. The error is a *ConflictError or a
// *fleet.FieldError.
func (r *Reconciler) Check(source string, desired []fleet.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.check(source, desired)
}

func (r *Reconciler) check(source string, desired []fleet.Record) error {
	type claim struct{ field, value string }
	taken := map[claim]string{}
	claims := func(rec fleet.Record) []claim {
		all := []claim{{"id", rec.ID.String()}, {"name", rec.Name}}
		if rec.URL != "" {
			all = append(all, claim{"url", rec.URL})
		}
		return all
	}
	for _, e := range r.entries {
		if e.source == source {
			continue
		}
		for _, c := range claims(e.want) {
			taken[c] = fmt.Sprintf("worker %s of source %s", e.want.Name, e.source)
		}
	}
	for _, rec := range desired {
		for _, c := range claims(rec) {
			if holder, ok := taken[c]; ok {
				return &ConflictError{Field: c.field, Value: c.value, Holder: holder}
			}
			taken[c] = "worker " + rec.Name + " of the same list"
		}
	}
	return nil
}

// Apply makes desired the whole list of the source. It returns after every
// change was tried once: a worker that could not be made ready is incomplete
// and stays so until a retry succeeds. An error means that nothing changed.
func (r *Reconciler) Apply(ctx context.Context, source string, desired []fleet.Record) error {
	changed, err := r.Plan(source, desired)
	if err != nil {
		return err
	}
	r.Bring(ctx, changed...)
	return nil
}

// Plan makes desired the whole list of the source: it withdraws what left it
// and returns the ids that are new or changed, for Bring. Run tries what nobody
// brings. An error means that nothing changed.
func (r *Reconciler) Plan(source string, desired []fleet.Record) (changed []fleet.WorkerID, err error) {
	r.planning.Lock()
	defer r.planning.Unlock()
	r.mu.Lock()
	if err := r.check(source, desired); err != nil {
		r.mu.Unlock()
		return nil, fmt.Errorf("apply workers of source %s: %w", source, err)
	}
	gone, changed := r.plan(source, desired)
	r.mu.Unlock()
	for _, e := range gone {
		r.withdraw(e)
	}
	return changed, nil
}

// plan records what the source wants now and returns what is to be done: the
// entries that left, and the ids that are new or changed. A worker that is
// wanted as before is left alone, ready or not: its retry comes by itself.
func (r *Reconciler) plan(source string, desired []fleet.Record) (gone []*entry, changed []fleet.WorkerID) {
	wanted := map[fleet.WorkerID]bool{}
	for _, rec := range desired {
		wanted[rec.ID] = true
		e := r.entries[rec.ID]
		if e == nil {
			e = &entry{source: source, lifecycle: core.Incomplete, listening: map[uint32]Listening{}}
			r.entries[rec.ID] = e
		} else if e.want.Equal(rec) {
			continue
		}
		e.want = rec
		e.round++
		e.pending, e.failures, e.retryAt = true, 0, time.Time{}
		changed = append(changed, rec.ID)
	}
	for id, e := range r.entries {
		if e.source == source && !wanted[id] {
			gone = append(gone, e)
			e.round++
			delete(r.entries, id)
		}
	}
	slices.SortFunc(gone, func(a, b *entry) int { return cmp.Compare(a.want.ID, b.want.ID) })
	return gone, changed
}

// withdraw takes a worker out of the core first, so that nothing selects it,
// then ends its listeners. Nobody changes want of an entry that has left.
func (r *Reconciler) withdraw(e *entry) {
	e.op.Lock()
	defer e.op.Unlock()
	r.uncommit(e, e.want.ID)
	r.unlisten(e, nil)
	r.log.Info("worker removed", "worker", e.want.Name, "source", e.source)
}

// uncommit and the calls below it run under e.op.
func (r *Reconciler) uncommit(e *entry, id fleet.WorkerID) {
	if e.committed == (fleet.PartitionKey{}) {
		return
	}
	if err := r.core.Commit(core.Change{Removals: []fleet.WorkerID{id}}); err != nil {
		r.log.Error("worker not removed", "worker", id.String(), "err", err)
	}
	e.committed = fleet.PartitionKey{}
}

// Workers lists all workers by id.
func (r *Reconciler) Workers() []View {
	r.mu.Lock()
	defer r.mu.Unlock()
	views := make([]View, 0, len(r.entries))
	for _, id := range slices.Sorted(maps.Keys(r.entries)) {
		e := r.entries[id]
		views = append(views, View{Record: e.want, Source: e.source, Lifecycle: e.lifecycle, Reasons: append([]string{}, e.reasons...), Pending: e.pending})
	}
	return views
}

// Worker finds a worker by decimal id or by name.
func (r *Reconciler) Worker(ref string) (View, bool) {
	for _, v := range r.Workers() {
		if v.Name == ref || strconv.FormatUint(uint64(v.ID), 10) == ref {
			return v, true
		}
	}
	return View{}, false
}
