package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/durable"
)

// DefaultDrain is how long a draining worker may finish what it has where nobody says
// otherwise; MaxDrain is the most.
const (
	DefaultDrain = 10 * time.Minute
	MaxDrain     = 24 * time.Hour
)

// ErrNotFound says that no source has such a worker.
var ErrNotFound = errors.New("no such worker")

// drain is that of one worker.
type drain struct {
	Until time.Time `json:"until"`
	URL   string    `json:"url"` // of the worker: one at another place is another one
	// Source is who brought it: a list of that one without the worker ends the drain.
	Source string `json:"source"`
	Over   bool   `json:"-"` // the time is over: what it had is given up
}

// Drains remembers which workers drain, over restarts too where it has a file. The zero
// value has none. It is safe for concurrent use.
type Drains struct {
	file string

	mu      sync.Mutex // guards workers and the file
	workers map[fleet.WorkerID]*drain
}

// OpenDrains reads the file; a missing one is an empty list.
func OpenDrains(file string) (*Drains, error) {
	d := &Drains{file: file}
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return d, nil
	case err != nil:
		return nil, fmt.Errorf("read drains: %w", err)
	}
	if err := json.Unmarshal(data, &d.workers); err != nil {
		return nil, fmt.Errorf("read drains from %s: %w", file, err)
	}
	return d, nil
}

// of is the drain of a worker; nil for none.
func (d *Drains) of(rec *fleet.Record) *drain {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.workers[rec.ID]; v != nil && v.URL == rec.URL {
		return v
	}
	return nil
}

// set makes it durable; nil ends the drain.
func (d *Drains) set(id fleet.WorkerID, to *drain) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := maps.Clone(d.workers)
	if next == nil {
		next = map[fleet.WorkerID]*drain{}
	}
	next[id] = to
	if to == nil {
		delete(next, id)
	}
	if err := d.store(next); err != nil {
		return err
	}
	d.workers = next
	return nil
}

// store writes the file, where there is one. mu must be held.
func (d *Drains) store(workers map[fleet.WorkerID]*drain) error {
	if d.file == "" {
		return nil
	}
	data, err := json.MarshalIndent(workers, "", "  ")
	if err != nil {
		return fmt.Errorf("encode drains: %w", err)
	}
	if err := durable.WriteFile(d.file, data, 0o600); err != nil {
		return fmt.Errorf("store drains: %w", err)
	}
	return nil
}

// forget drops workers that have left a source, also while nobody looked, or are at
// another place now, at once; what cannot be written then goes from the file with the
// next change.
func (d *Drains) forget(source string, gone []*entry, stay []fleet.Record) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := len(d.workers)
	if before == 0 {
		return nil
	}
	for _, e := range gone {
		delete(d.workers, e.want.ID)
	}
	urls := make(map[fleet.WorkerID]string, len(stay))
	for _, rec := range stay {
		urls[rec.ID] = rec.URL
	}
	maps.DeleteFunc(d.workers, func(id fleet.WorkerID, v *drain) bool {
		url, stays := urls[id]
		return stays && url != v.URL || !stays && v.Source == source
	})
	if len(d.workers) == before {
		return nil
	}
	return d.store(d.workers)
}

// Drain takes a worker, by decimal id or name, out for new requests and lets it finish
// those that it has, for at most that long: then they are given up. Whoever brought it
// may be any source. It is remembered over a restart and ends with Undrain, or when the
// worker leaves or its URL changes. The error is ErrNotFound or a *fleet.FieldError.
func (r *Reconciler) Drain(ref string, limit time.Duration) (View, error) {
	if limit < 0 || limit > MaxDrain {
		return View{}, &fleet.FieldError{Field: "timeout", Value: limit.String(), Allowed: "0s to " + MaxDrain.String()}
	}
	v, _, err := r.setDrain(ref, &drain{Until: time.Now().Add(limit)})
	return v, err
}

// Undrain lets a worker have new requests again, and returns how it stands after one
// attempt or the end of ctx. One that does not drain is left as it is. The error is
// ErrNotFound.
func (r *Reconciler) Undrain(ctx context.Context, ref string) (View, error) {
	v, changed, err := r.setDrain(ref, nil)
	if err != nil || !changed && v.Lifecycle != core.Draining { // another Undrain may be about it
		return v, err
	}
	r.Bring(ctx, v.ID)
	if now, ok := r.Worker(v.ID.String()); ok {
		return now, nil
	}
	return v, nil
}

// setDrain tells whether that changed anything: one that does not drain stays as it is
// when a drain is ended.
func (r *Reconciler) setDrain(ref string, to *drain) (v View, changed bool, err error) {
	r.planning.Lock() // nobody drops the worker meanwhile
	defer r.planning.Unlock()
	r.mu.Lock()
	e := r.find(ref)
	if e != nil {
		v, changed = e.view(), to != nil || e.drain != nil
	}
	r.mu.Unlock()
	if e == nil {
		return View{}, false, fmt.Errorf("worker %q: %w", ref, ErrNotFound)
	}
	if !changed {
		return v, false, nil
	}
	id := e.want.ID // nobody changes it while planning is held
	if to != nil {
		to.URL, to.Source = e.want.URL, e.source
	}
	if err := r.parts.Drains.set(id, to); err != nil {
		return View{}, false, err
	}
	r.mu.Lock()
	e.drain, e.again = to, true
	r.mayBeAnother(e)
	r.mu.Unlock()
	if to != nil {
		r.stopNew(e)
	}
	r.changes.tell()
	r.hurry()
	v, _ = r.Worker(id.String())
	return v, true, nil
}

// stopNew takes a worker out for new requests before anything else is looked at.
func (r *Reconciler) stopNew(e *entry) {
	e.op.Lock()
	defer e.op.Unlock()
	m := e.applied
	if m.Lifecycle = core.Draining; e.committed == (fleet.PartitionKey{}) {
		return // it has nothing
	}
	if err := r.parts.Core.Commit(core.Change{Upserts: []core.Member{m}}); err != nil {
		r.log.Error("worker does not drain yet; it is tried again", "worker", m.Record.Name, "err", err)
		return
	}
	e.applied = m
	r.mu.Lock()
	defer r.mu.Unlock()
	e.lifecycle = core.Draining
}

// drainOver is the reason of a worker whose time to drain is over.
const drainOver = "drain_over: its time is over; what it still had counts no more"

// endDrains gives up what those workers still have whose time is over.
func (r *Reconciler) endDrains(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		if e.drain != nil && !e.drain.Over && !now.Before(e.drain.Until) {
			over := *e.drain // others may read the one before
			over.Over = true
			e.drain, e.again = &over, true
		}
	}
}
