package policy

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Handle is what a partition holds for a rule: the place where the active
// revision of a policy is found. Safe for concurrent use.
type Handle struct {
	mu     sync.Mutex // guards publishing
	active atomic.Pointer[Revision]
	kept   atomic.Pointer[ColumnSet]
}

// NewHandle makes a handle that publishes rev.
func NewHandle(rev *Revision) (*Handle, error) {
	h := &Handle{}
	h.kept.Store(&ColumnSet{})
	return h, h.Publish(rev)
}

// Acquire returns the active revision with a reference; the caller must call
// Release on it.
func (h *Handle) Acquire() *Revision {
	for {
		// A revision whose last reference goes between the load and the
		// acquire has been replaced: the next load finds its successor.
		if r := h.active.Load(); r.acquire() {
			return r
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
	if old := h.active.Swap(rev); old != nil {
		old.published.Add(-1)
		old.Release()
	}
	return nil
}

// Keep names columns beyond those of the active revision that tables must hold,
// so that decision records can be read by every revision that is kept.
func (h *Handle) Keep(columns ColumnSet) { h.kept.Store(&columns) }

// Kept is the set given to Keep; the zero set before.
func (h *Handle) Kept() ColumnSet { return *h.kept.Load() }
