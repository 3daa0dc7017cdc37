package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/selection"
)

// selectionWorkers shows the selection service the workers of all sources, and has
// it change those that were put by API.
type selectionWorkers struct {
	catalog *catalog.Reconciler
	source  *api.Source
}

var _ selection.Workers = selectionWorkers{}

// List gives the workers by id.
func (w selectionWorkers) List() []selection.Worker {
	views := w.catalog.Workers()
	out := make([]selection.Worker, len(views))
	for i := range views {
		out[i] = selectionWorker(views[i])
	}
	return out
}

// Find gives one worker.
func (w selectionWorkers) Find(id fleet.WorkerID) (selection.Worker, bool) {
	v, ok := w.catalog.Worker(id.String())
	if !ok || v.ID != id { // it is the name of another one
		return selection.Worker{}, false
	}
	return selectionWorker(v), true
}

// Put adds or replaces a worker.
func (w selectionWorkers) Put(ctx context.Context, rec fleet.Record) (selection.Worker, error) {
	v, _, err := w.source.Put(ctx, rec)
	return selectionWorker(v), workerRefusal(rec.ID, err)
}

// Update changes a worker.
func (w selectionWorkers) Update(ctx context.Context, id fleet.WorkerID, change func(*fleet.Record) error) (selection.Worker, error) {
	v, err := w.source.Update(ctx, id, change)
	return selectionWorker(v), workerRefusal(id, err)
}

// Delete removes a worker.
func (w selectionWorkers) Delete(ctx context.Context, id fleet.WorkerID) (selection.Worker, error) {
	rec, err := w.source.Delete(ctx, id.String())
	return selection.Worker{Record: rec, Lifecycle: core.Ejected}, workerRefusal(id, err)
}

func selectionWorker(v catalog.View) selection.Worker {
	return selection.Worker{Record: v.Record, Lifecycle: v.Lifecycle, Reasons: v.Reasons}
}

// workerRefusal turns the catalog's refusals into those of the service; other
// errors stay.
func workerRefusal(id fleet.WorkerID, err error) error {
	refuse := func(code httpapi.Code, message string) error {
		return &httpapi.Failure{Code: code, Message: message, Details: httpapi.Details{Step: "workers", Item: id.String()}}
	}
	if e, ok := errors.AsType[*catalog.ConflictError](err); ok {
		field := e.Field
		if field == "url" {
			field = "endpoint"
		}
		return refuse(httpapi.CodeConflict, fmt.Sprintf("worker %s: %s %q is taken by %s", id, field, e.Value, e.Holder))
	}
	if e, ok := errors.AsType[*catalog.ForeignError](err); ok {
		return refuse(httpapi.CodeConflict, fmt.Sprintf("worker %s: %s", id, e))
	}
	if errors.Is(err, api.ErrNotFound) {
		return refuse(httpapi.CodeNotFound, fmt.Sprintf("worker %s not found", id))
	}
	return err
}
