package catalog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// Parts are what a Reconciler works with. Health may be nil: then every worker is
// well. All are safe for concurrent use.
type Parts struct {
	Core      Core
	Listeners Listeners
	Engines   Engines
	Health    Health
	// Adapters are those that an engine says it has loaded; ok is false where it has
	// not said so lately. May be nil.
	Adapters func(id fleet.WorkerID) (loaded []fleet.Adapter, ok bool)
	// Drains may be nil: then none is remembered.
	Drains *Drains
	// Left hears of a URL at which a worker is no more: who comes there is another. It is
	// called while a list is being planned, must be short and call nothing here but AtURL
	// and Reconsider. May be nil.
	Left func(url string)
}

// Reconciler makes the core's workers equal to what all sources want. It is
// safe for concurrent use.
type Reconciler struct {
	parts    Parts
	log      *slog.Logger
	probes   chan struct{} // holds one for each engine that is asked
	reprobes chan struct{} // the same, of those that failed to answer before
	wake     chan struct{} // size 1: a full one already wakes Run
	changes  *changes

	// planning is held from the check of a list to the end of its withdrawals, so
	// that a worker that one source drops and another brings never overlap.
	planning sync.Mutex

	mu      sync.Mutex // guards entries, names and, in each entry, the fields above op
	entries map[fleet.WorkerID]*entry
	names   map[string]fleet.WorkerID
}

// entry is one wanted worker.
type entry struct {
	source    string
	want      fleet.Record
	record    fleet.Record // want with what the engine tells
	round     uint64       // rises with each change of want, so that a late preparation is noticed
	pending   bool         // whether no attempt told yet how want does
	again     bool         // whether something else than want has changed since the last attempt
	attempt   *attempt
	facts     *Facts // nil while the engine was not asked
	askAt     time.Time
	silences  int // asked in vain, in a row
	doubts    int // reasons to think that what answers next is another engine; it rises until one has told
	drain     *drain
	lifecycle core.Lifecycle
	reasons   []string
	failures  int
	retryAt   time.Time

	op        sync.Mutex         // guards what has been applied: the fields below
	committed fleet.PartitionKey // where the core has it; zero when nowhere
	applied   core.Member        // what the core has of it
	listening map[uint32]Listening
	reading   atomic.Pointer[fleet.Record] // what the subscriptions read; safe without op
}

// tried tells whether an attempt for what is wanted now is under way.
func (e *entry) tried() bool { return e.attempt != nil && e.attempt.round == e.round }

// New makes a Reconciler without workers.
func New(parts Parts, log *slog.Logger) *Reconciler {
	if parts.Drains == nil {
		parts.Drains = &Drains{}
	}
	return &Reconciler{
		parts: parts, log: log, changes: newChanges(),
		probes: make(chan struct{}, maxProbes), reprobes: make(chan struct{}, maxReprobes), wake: make(chan struct{}, 1),
		entries: map[fleet.WorkerID]*entry{}, names: map[string]fleet.WorkerID{},
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
	place := "change or remove it there"
	switch {
	case e.Source == "file":
		place = "change or remove it in workers.static of the configuration"
	case strings.HasPrefix(e.Source, "dns:"):
		place = "the name server, workers.dns of the configuration and draining say who is there"
	}
	return fmt.Sprintf("worker %q comes from the source %q: %s", e.Worker, e.Source, place)
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
		if rec.ID == fleet.IDFromName(rec.Name) { // nobody typed it
			slices.Reverse(all)
		}
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
	r.bring(ctx, changed, true) // what Run was quicker with waits its pause
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
	p := r.plan(source, desired)
	r.mu.Unlock()
	if err := r.parts.Drains.forget(source, p.gone, desired); err != nil {
		r.log.Error("drain of a worker that has left or moved not forgotten", "source", source, "err", err)
	}
	r.withdraw(p.gone)
	r.rename(p.renamed)
	for _, url := range p.left {
		if r.parts.Left != nil && url != "" {
			r.parts.Left(url)
		}
	}
	if len(p.gone)+len(p.changed) > 0 {
		r.changes.tell()
		r.hurry()
	}
	return p.changed, nil
}

// planned is what another list of a source leads to.
type planned struct {
	gone    []*entry         // that left, by id
	changed []fleet.WorkerID // new or changed
	renamed []*entry         // that have another name now, by id; none where no name goes from one worker to another
	left    []string         // URLs of those that left or moved; empty for one that had none
}

// plan records what the source wants now and returns what is to be done. A worker that
// is wanted as before is left alone, ready or not: its retry comes by itself.
func (r *Reconciler) plan(source string, desired []fleet.Record) (p planned) {
	wanted, freed := map[fleet.WorkerID]bool{}, map[string]*entry{}
	for _, rec := range desired {
		wanted[rec.ID] = true
		e := r.entries[rec.ID]
		if e == nil {
			e = &entry{source: source, lifecycle: core.Incomplete, listening: map[uint32]Listening{}}
			r.entries[rec.ID] = e
		} else if e.want.Equal(rec) {
			continue
		}
		if e.want.URL != rec.URL { // another engine
			p.left = append(p.left, e.want.URL)
			e.facts, e.askAt, e.silences, e.drain = nil, time.Time{}, 0, r.parts.Drains.of(&rec)
		}
		if was := e.want.Name; was != "" && was != rec.Name {
			freed[was] = e
		}
		delete(r.names, e.want.Name)
		e.want, e.record = rec, shown(rec, e.facts)
		e.round++
		e.hush(errUnwanted)
		e.pending, e.failures, e.retryAt = true, 0, time.Time{}
		p.changed = append(p.changed, rec.ID)
	}
	for id, e := range r.entries {
		if e.source == source && !wanted[id] {
			p.gone, p.left = append(p.gone, e), append(p.left, e.want.URL)
			e.round++
			e.hush(errUnwanted)
			delete(r.entries, id)
			delete(r.names, e.want.Name)
		}
	}
	for _, rec := range desired { // last: names may have moved among them
		r.names[rec.Name] = rec.ID
	}
	byID := func(a, b *entry) int { return cmp.Compare(a.want.ID, b.want.ID) }
	if slices.ContainsFunc(desired, func(rec fleet.Record) bool { return freed[rec.Name] != nil }) {
		p.renamed = slices.SortedFunc(maps.Values(freed), byID)
	}
	slices.SortFunc(p.gone, byID)
	return p
}

// shown is a record with what the engine tells and, of the rest, the defaults; its
// model stays unknown until somebody tells it.
func shown(want fleet.Record, facts *Facts) fleet.Record {
	rec := merged(want, facts)
	full, err := rec.Filled()
	if err != nil {
		return rec
	}
	full.Model = rec.Model
	return full
}

// withdraw takes workers out of the core first, in one change, so that nothing selects
// them, then ends their listeners. Nobody changes want of an entry that has left; they
// are sorted by id.
func (r *Reconciler) withdraw(gone []*entry) {
	defer locked(gone)()
	r.uncommit(gone...)
	for _, e := range gone {
		r.unlisten(e, nil)
		r.log.Info("worker removed", "worker", e.want.Name, "source", e.source)
	}
}

// uncommit and the calls below it run under op of the entries.
func (r *Reconciler) uncommit(all ...*entry) {
	var change core.Change
	for _, e := range all {
		if e.committed != (fleet.PartitionKey{}) {
			change.Removals = append(change.Removals, e.applied.Record.ID)
			e.committed, e.applied = fleet.PartitionKey{}, core.Member{}
		}
	}
	if len(change.Removals) == 0 {
		return
	}
	if err := r.parts.Core.Commit(change); err != nil {
		r.log.Error("workers not removed", "workers", len(change.Removals), "first", change.Removals[0].String(), "err", err)
	}
}

// Changed returns a channel that is closed at the next change of any worker: its
// record, its lifecycle or its reasons.
func (r *Reconciler) Changed() <-chan struct{} { return r.changes.changed() }

// Workers lists all workers by id.
func (r *Reconciler) Workers() []View {
	r.mu.Lock()
	defer r.mu.Unlock()
	views := make([]View, 0, len(r.entries))
	for _, id := range slices.Sorted(maps.Keys(r.entries)) {
		views = append(views, r.entries[id].view())
	}
	return views
}

// Worker finds a worker by decimal id or by name.
func (r *Reconciler) Worker(ref string) (View, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.find(ref)
	if e == nil {
		return View{}, false
	}
	return e.view(), true
}

// AtURL finds the worker with a normalised base URL.
func (r *Reconciler) AtURL(url string) (fleet.WorkerID, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, e := range r.entries {
		if e.want.URL == url {
			return id, true
		}
	}
	return 0, false
}

// find is the entry of that name or decimal id; nil for none. mu must be held.
func (r *Reconciler) find(ref string) *entry {
	if id, ok := r.names[ref]; ok {
		return r.entries[id]
	}
	id, err := fleet.ParseWorkerID(ref)
	if err != nil {
		return nil
	}
	return r.entries[id]
}

// view is the worker as others see it. mu must be held.
func (e *entry) view() View {
	v := View{
		Record: e.record, Source: e.source, Lifecycle: e.lifecycle, Reasons: append([]string{}, e.reasons...), Pending: e.pending,
	}
	if e.facts != nil {
		v.Version, v.Untold, v.LoadReports = e.facts.Version, untoldOf(&e.want, e.facts.Untold), e.facts.LoadReports
	}
	if e.drain != nil {
		until := e.drain.Until
		v.DrainUntil = &until
	}
	return v
}
