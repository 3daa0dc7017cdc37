// Package api is the catalog source behind the worker routes of the admin API and
// of the selection service. Its workers are kept in one file and survive a crash at
// any point: a change that was answered is found again after the next start.
//
// A change is planned before it is answered, whether the Source is followed or not.
// Who follows it calls Restore first, which leaves out what other sources claim by
// now; the contract would have the whole list refused.
//
// A Source is safe for concurrent use; it starts no goroutines. Locks: Source.mu →
// those of catalog.List.
//
//	src, err := api.Open(filepath.Join(dataDir, "workers.json"), reconciler)
//	skipped, err := src.Restore(ctx)
//	go sources.Follow(ctx, src, catalog.DefaultFollowConfig())
//	view, created, err := src.Put(ctx, record)
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/durable"
)

// Name is the source's name in views and conflicts.
const Name = "api"

// ErrNotFound says that no source has such a worker.
var ErrNotFound = catalog.ErrNotFound

// Source holds the workers that were put by API.
type Source struct {
	file       string
	reconciler *catalog.Reconciler
	list       *catalog.List // hands the workers to whoever follows

	mu      sync.Mutex // guards records and the file, and orders what list is set to
	records []fleet.Record
}

var _ catalog.Source = (*Source)(nil)

// stored is a worker in the file.
type stored struct {
	fleet.Record
	Asked string `json:"asked,omitempty"`
}

// Open reads the file; a missing one is an empty list. A file that cannot be
// read is an error: nothing is lost silently.
func Open(file string, r *catalog.Reconciler) (*Source, error) {
	s := &Source{file: file, reconciler: r, list: catalog.NewList(Name, nil)}
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("read workers: %w", err)
	}
	var kept []stored
	if err := json.Unmarshal(data, &kept); err != nil {
		return nil, fmt.Errorf("read workers from %s: %w", file, err)
	}
	for _, k := range kept {
		k.Record.Asked = k.Asked
		s.records = append(s.records, k.Record)
	}
	return s, s.list.Set(s.records)
}

// Name implements catalog.Source.
func (s *Source) Name() string { return Name }

// Watch implements catalog.Source. One at a time.
func (s *Source) Watch(ctx context.Context, give func([]fleet.Record) error) error {
	return s.list.Watch(ctx, give)
}

// List implements catalog.Source.
func (s *Source) List(ctx context.Context) ([]fleet.Record, error) { return s.list.List(ctx) }

// Restore hands the stored workers to the reconciler. A stored worker that
// another source claims by now is that source's: it is named in skipped and leaves
// the file, so that it does not come back when the other source lets go.
// It waits until each was tried once or ctx ends.
func (s *Source) Restore(ctx context.Context) (skipped []error, err error) {
	skipped, changed, err := s.restore()
	if err != nil {
		return skipped, err
	}
	s.reconciler.Bring(ctx, changed...)
	return skipped, nil
}

func (s *Source) restore() (skipped []error, changed []fleet.WorkerID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []fleet.Record
	for _, rec := range s.records {
		if err := s.reconciler.Check(Name, append(kept[:len(kept):len(kept)], rec)); err != nil {
			skipped = append(skipped, fmt.Errorf("stored worker %q: %w", rec.Name, err))
			continue
		}
		kept = append(kept, rec)
	}
	if len(skipped) > 0 {
		if err := s.write(kept); err != nil {
			return skipped, nil, err
		}
	}
	changed, err = s.plan(kept)
	return skipped, changed, err
}

// plan makes a list that is durable the reconciler's: through whoever follows, and by
// itself where nobody does; the same list twice changes nothing.
func (s *Source) plan(next []fleet.Record) (changed []fleet.WorkerID, err error) {
	if err := s.list.Set(next); err != nil {
		return nil, err
	}
	if changed, err = s.reconciler.Plan(Name, next); err != nil {
		return nil, errors.Join(err, s.list.Set(s.records))
	}
	s.records = next
	return changed, nil
}

// Put adds or replaces a worker, whole, and returns how it stands after one
// attempt to make it ready, which takes as long as its engine may take to tell a
// block size (2 s) and its partition to be built. Without an id, a worker that has
// the name is replaced. The error is a *fleet.FieldError for a bad record or a
// *catalog.ConflictError for one that another worker stands against; nothing
// has changed then.
func (s *Source) Put(ctx context.Context, rec fleet.Record) (view catalog.View, created bool, err error) {
	rec, err = rec.Normalised()
	if err != nil {
		return catalog.View{}, false, err
	}
	created, err = s.add(rec)
	if err != nil {
		return catalog.View{}, false, err
	}
	return s.bring(ctx, rec), created, nil
}

// Update changes the worker with the id and returns how it stands after one
// attempt, as Put does. change gets the record as it is; it must replace the maps
// and slices that it changes, and is called again when another change came first.
// Its error comes back as it is; the others are those of Put and Delete.
func (s *Source) Update(ctx context.Context, id fleet.WorkerID, change func(*fleet.Record) error) (catalog.View, error) {
	for {
		was, err := s.own(id)
		if err != nil {
			return catalog.View{}, err
		}
		rec := was
		if err := change(&rec); err != nil {
			return catalog.View{}, err
		}
		if rec, err = rec.Normalised(); err != nil {
			return catalog.View{}, err
		}
		if rec.ID != id {
			return catalog.View{}, &fleet.FieldError{Field: "id", Value: rec.ID.String(), Allowed: id.String() + ", which a change keeps"}
		}
		switch changed, err := s.swap(was, rec); {
		case err != nil:
			return catalog.View{}, err
		case changed:
			return s.bring(ctx, rec), nil
		}
	}
}

// own finds a worker of this source.
func (s *Source) own(id fleet.WorkerID) (fleet.Record, error) {
	s.mu.Lock()
	i := slices.IndexFunc(s.records, func(o fleet.Record) bool { return o.ID == id })
	var rec fleet.Record
	if i >= 0 {
		rec = s.records[i]
	}
	s.mu.Unlock()
	if i >= 0 {
		return rec, nil
	}
	for _, v := range s.reconciler.Workers() {
		if v.ID == id && v.Source != Name {
			return rec, &catalog.ForeignError{Worker: v.Name, Source: v.Source}
		}
	}
	return rec, fmt.Errorf("worker %q: %w", id, ErrNotFound)
}

// swap stores rec if the worker is still as it was.
func (s *Source) swap(was, rec fleet.Record) (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.records, was.Equal)
	if i < 0 {
		return false, nil
	}
	next := slices.Clone(s.records)
	next[i] = rec
	return true, s.replace(next)
}

// bring tries a worker whose change is durable: a caller that has gone does not
// undo it. No lock is held, so that a silent engine delays this worker's answer
// only.
func (s *Source) bring(ctx context.Context, rec fleet.Record) catalog.View {
	view, ok := s.reconciler.Worker(rec.ID.String())
	if ok && (view.Pending || view.Lifecycle != core.Ready) {
		s.reconciler.Bring(context.WithoutCancel(ctx), rec.ID)
		view, ok = s.reconciler.Worker(rec.ID.String())
	}
	if !ok {
		view = catalog.View{Record: rec, Source: Name, Lifecycle: core.Incomplete, Reasons: []string{"removed while it was put"}}
	}
	return view
}

// add stores the worker and plans it.
func (s *Source) add(rec fleet.Record) (created bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := slices.Clone(s.records)
	i := slices.IndexFunc(next, func(o fleet.Record) bool { return o.ID == rec.ID })
	if i >= 0 {
		next[i] = rec
	} else {
		next = append(next, rec)
	}
	return i < 0, s.replace(next)
}

// Delete removes the worker with the id or name and returns what it was. The
// error is ErrNotFound, or a *catalog.ForeignError for a worker of another source,
// which only that source can remove.
func (s *Source) Delete(_ context.Context, ref string) (fleet.Record, error) {
	view, ok := s.reconciler.Worker(ref)
	if !ok {
		return fleet.Record{}, fmt.Errorf("worker %q: %w", ref, ErrNotFound)
	}
	if view.Source != Name {
		return fleet.Record{}, &catalog.ForeignError{Worker: view.Name, Source: view.Source}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.records, func(o fleet.Record) bool { return o.ID == view.ID })
	if i < 0 {
		return fleet.Record{}, fmt.Errorf("worker %q: %w", ref, ErrNotFound)
	}
	gone := s.records[i]
	return gone, s.replace(slices.Delete(slices.Clone(s.records), i, i+1))
}

// replace checks the list, makes it durable, then plans it, so that no answered
// change is lost and no refused one is kept.
func (s *Source) replace(next []fleet.Record) error {
	if err := s.reconciler.Check(Name, next); err != nil {
		return err
	}
	if err := s.write(next); err != nil {
		return err
	}
	if _, err := s.plan(next); err != nil {
		return errors.Join(err, s.write(s.records))
	}
	return nil
}

func (s *Source) write(records []fleet.Record) error {
	kept := make([]stored, len(records))
	for i, rec := range records {
		kept[i] = stored{Record: rec, Asked: rec.Asked}
	}
	data, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return fmt.Errorf("encode workers: %w", err)
	}
	if err := durable.WriteFile(s.file, data, 0o600); err != nil {
		return fmt.Errorf("store workers: %w", err)
	}
	return nil
}
