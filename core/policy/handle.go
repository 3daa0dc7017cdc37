package policy

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/routerd/routerd/plugins/abi"
)

// Handle is what a partition holds for a rule: the place where the active
// revision of a policy is found, the canary beside it and who observes what is
// decided. Safe for concurrent use.
type Handle struct {
	mu        sync.Mutex // guards publishing and all below
	now       atomic.Pointer[published]
	kept      ColumnSet
	observers []Observer
}

// published is what decisions find: immutable.
type published struct {
	active    *Revision
	canary    *Canary // nil for none
	observers []Observer
	columns   ColumnSet // of every table
}

// Canary sends a share of the decisions to another revision of the policy.
type Canary struct {
	Revision *Revision
	// Percent is the share, 0 to 100, chosen by a hash: of the request, or of its
	// session where BySession is set and it has one.
	Percent   float64
	BySession bool
	// Header and Value send the requests whose header has that value, whatever
	// Percent says; an empty Header sends none.
	Header, Value string
}

// Ask is what a canary chooses by.
type Ask struct {
	Seed    uint64 // the request's, the same over all its attempts
	Session string // empty for none
	// Header returns a request header that policies may see; nil for none.
	Header func(name string) string
	// Overrides are the request's; nil for none. A canary that would refuse them
	// leaves the request to the active revision.
	Overrides map[string]json.RawMessage
}

// Observer hears of decisions that were committed. Observe is called on the
// request's goroutine: it must not block and must keep neither t nor d.
type Observer interface {
	Observe(by *Revision, t *Table, d *Decision)
}

// Lease is a revision to decide with, with what belongs to the decision. Release
// gives it back.
type Lease struct {
	*Revision
	// Columns are those of the tables to decide from: the revision's and those
	// that other kept revisions read. The caller must not change them.
	Columns   ColumnSet
	Canary    bool // the canary decides
	observers []Observer
}

// Observe tells the observers of a committed decision.
func (l *Lease) Observe(t *Table, d *Decision) {
	for _, o := range l.observers {
		o.Observe(l.Revision, t, d)
	}
}

// Observed tells whether anybody observes.
func (l *Lease) Observed() bool { return len(l.observers) > 0 }

// NewHandle makes a handle that publishes rev. It fails when rev is closed.
func NewHandle(rev *Revision) (*Handle, error) {
	h := &Handle{}
	return h, h.Publish(rev)
}

// Acquire returns the revision that decides for a request, with a reference, on
// which the caller must call Release. A canary that has tripped decides no more.
func (h *Handle) Acquire(ask Ask) Lease {
	for {
		// A revision whose last reference goes between the load and the
		// acquire has been replaced: the next load finds its successor.
		p := h.now.Load()
		rev, canary := p.active, false
		if c := p.canary; c != nil && c.takes(ask) && !c.Revision.tripped.Load() && c.Revision.CheckOverrides(ask.Overrides) == nil {
			rev, canary = c.Revision, true
		}
		if rev.acquire() {
			return Lease{Revision: rev, Columns: p.columns, Canary: canary, observers: p.observers}
		}
	}
}

// Active returns the active revision with a reference, whatever the canary.
func (h *Handle) Active() *Revision {
	for {
		if p := h.now.Load(); p.active.acquire() {
			return p.active
		}
	}
}

// takes tells whether the canary decides for a request.
func (c *Canary) takes(ask Ask) bool {
	if c.Header != "" && ask.Header != nil && ask.Header(c.Header) == c.Value {
		return true
	}
	key := ask.Seed
	if c.BySession && ask.Session != "" {
		key = uint64(abi.ID(ask.Session))
	}
	// The seed also draws ties: another generator step keeps the two apart.
	return float64(SplitMix64(key^canarySalt)>>11)*(100.0/(1<<53)) < c.Percent
}

const canarySalt = 0x63616e617279 // "canary"

// Publish makes rev the active revision. No decision that acquires after
// Publish returned uses the one before, which closes when it is retired and its
// last call has ended. A canary of the same revision ends. A revision that is
// closed is refused.
func (h *Handle) Publish(rev *Revision) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !rev.acquire() {
		return errors.New("publish revision: it is closed")
	}
	rev.published.Add(1)
	next := published{active: rev}
	old := h.now.Load()
	if old != nil {
		next.canary = old.canary
	}
	if next.canary != nil && next.canary.Revision == rev {
		next.canary = nil
		rev.unpublish()
	}
	h.store(next)
	if old != nil {
		old.active.unpublish()
	}
	return nil
}

// SetCanary lets another revision decide for a share of the requests; nil ends
// it. A revision that is closed is refused. No decision that acquires after it
// returned uses a canary that was ended.
func (h *Handle) SetCanary(c *Canary) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c != nil {
		if !c.Revision.acquire() {
			return errors.New("publish canary: its revision is closed")
		}
		c.Revision.published.Add(1)
		kept := *c
		c = &kept
	}
	old := h.now.Load()
	h.store(published{active: old.active, canary: c})
	if old.canary != nil {
		old.canary.Revision.unpublish()
	}
	return nil
}

// SetObservers replaces who hears of committed decisions.
func (h *Handle) SetObservers(observers ...Observer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.observers = observers
	old := h.now.Load()
	h.store(published{active: old.active, canary: old.canary})
}

// Keep names columns beyond those of the active revision that tables must hold,
// so that decision records can be read by every revision that is kept.
func (h *Handle) Keep(columns ColumnSet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = columns.Clone()
	old := h.now.Load()
	h.store(published{active: old.active, canary: old.canary})
}

// store publishes p with what the handle knows beside it. mu is held.
func (h *Handle) store(p published) {
	p.observers = h.observers
	p.columns = p.active.Columns().Clone()
	p.columns.Union(h.kept)
	if p.canary != nil {
		p.columns.Union(p.canary.Revision.Columns())
	}
	h.now.Store(&p)
}

// unpublish gives up what a handle holds of a revision.
func (r *Revision) unpublish() {
	r.published.Add(-1)
	r.Release()
}
