package policy

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Handle is what a partition holds for a rule: the place where the active
// revision of a policy is found. Safe for concurrent use.
type Handle struct {
	mu     sync.Mutex // guards publishing and kept
	active atomic.Pointer[published]
	kept   ColumnSet
}

// published is the active revision with the columns that its tables hold.
type published struct {
	rev     *Revision
	columns ColumnSet
}

func newPublished(rev *Revision, kept ColumnSet) *published {
	p := &published{rev: rev, columns: rev.Columns().Clone()}
	p.columns.Union(kept)
	return p
}

// NewHandle makes a handle that publishes rev. It fails when rev is closed.
func NewHandle(rev *Revision) (*Handle, error) {
	h := &Handle{}
	return h, h.Publish(rev)
}

// Acquire returns the active revision with a reference, on which the caller
// must call Release.
func (h *Handle) Acquire() *Revision {
	rev, _ := h.AcquireColumns()
	return rev
}

// AcquireColumns is Acquire that also returns the columns of the tables to
// decide from: those of the revision and those given to Keep. The caller must
// not change them.
func (h *Handle) AcquireColumns() (*Revision, ColumnSet) {
	for {
		// A revision whose last reference goes between the load and the
		// acquire has been replaced: the next load finds its successor.
		if p := h.active.Load(); p.rev.acquire() {
			return p.rev, p.columns
		}
	}
}

// Publish makes rev the active revision. No decision that acquires after
// Publish returned uses the one before, which closes when it is retired and its
// last call has ended. A revision that is closed is refused.
func (h *Handle) Publish(rev *Revision) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !rev.acquire() {
		return errors.New("publish revision: it is closed")
	}
	rev.published.Add(1)
	if old := h.active.Swap(newPublished(rev, h.kept)); old != nil {
		old.rev.published.Add(-1)
		old.rev.Release()
	}
	return nil
}

// Keep names columns beyond those of the active revision that tables must hold,
// so that decision records can be read by every revision that is kept.
func (h *Handle) Keep(columns ColumnSet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = columns.Clone()
	h.active.Store(newPublished(h.active.Load().rev, h.kept))
}
