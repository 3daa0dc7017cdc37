// Package admintest stands in for what an admin API in a test has no parts for.
package admintest

import (
	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
)

// PlainWorkers shows a catalog's workers, of whose ranks nobody knows load or cache.
type PlainWorkers struct{ *catalog.Reconciler }

var _ admin.WorkerList = PlainWorkers{}

// Workers lists all workers by id.
func (w PlainWorkers) Workers() []admin.Worker {
	var out []admin.Worker
	for _, v := range w.Reconciler.Workers() {
		out = append(out, admin.Worker{View: v, Ranks: []admin.WorkerRank{}})
	}
	return out
}

// Worker finds a worker by id or name.
func (w PlainWorkers) Worker(ref string) (admin.Worker, bool) {
	v, ok := w.Reconciler.Worker(ref)
	return admin.Worker{View: v, Ranks: []admin.WorkerRank{}}, ok
}
