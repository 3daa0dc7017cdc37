package app

import (
	"sync/atomic"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/fleet"
)

// roster is the reconciler for those who are made before it: the core asks them, and
// it works for the core. Until it is there they see no workers. It is safe for
// concurrent use.
type roster struct {
	reconciler atomic.Pointer[catalog.Reconciler]
	came       chan struct{} // closed when it is there
}

var (
	_ health.Reconciler = (*roster)(nil)
	_ scrape.Reconciler = (*roster)(nil)
)

func newRoster() *roster { return &roster{came: make(chan struct{})} }

// is takes over the reconciler; once.
func (r *roster) is(rec *catalog.Reconciler) {
	r.reconciler.Store(rec)
	close(r.came)
}

// Workers lists all workers by id.
func (r *roster) Workers() []catalog.View {
	if rec := r.reconciler.Load(); rec != nil {
		return rec.Workers()
	}
	return nil
}

// Changed returns a channel that is closed at the next change of a worker, or when the
// reconciler comes.
func (r *roster) Changed() <-chan struct{} {
	if rec := r.reconciler.Load(); rec != nil {
		return rec.Changed()
	}
	return r.came
}

// Reconsider has a worker looked at again.
func (r *roster) Reconsider(id fleet.WorkerID) {
	if rec := r.reconciler.Load(); rec != nil {
		rec.Reconsider(id)
	}
}

// atURL finds the worker with a base URL.
func (r *roster) atURL(url string) (fleet.WorkerID, bool) {
	rec := r.reconciler.Load()
	if rec == nil {
		return 0, false
	}
	return rec.AtURL(url)
}
