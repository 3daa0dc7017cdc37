package host

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// LackingError is a recording without columns that a revision reads: what it
// would have chosen cannot be told.
type LackingError struct {
	Policy   string
	Revision int
	Columns  []string // in table order
}

// Error names the columns.
func (e *LackingError) Error() string {
	return fmt.Sprintf("policy %q revision %d reads columns that were not recorded: %s", e.Policy, e.Revision, strings.Join(e.Columns, ", "))
}

// OverrideError is a recorded request with an override that a revision does not
// take: with that revision active the request would have been refused.
type OverrideError struct {
	Policy   string
	Revision int
	Override string // its name, as the request had it
	Allowed  string
}

// Error names the override. Its value stays the request's own.
func (e *OverrideError) Error() string {
	return fmt.Sprintf("policy %q revision %d refuses the request's override %q", e.Policy, e.Revision, clip(e.Override, 80))
}

// ExplainReport is what a revision chooses for a recorded request.
type ExplainReport struct {
	Policy   string
	Revision int
	Digests  []string
	Stages   []policy.StageName // in the order of the decision's scores and masks
	Worker   fleet.Worker       // that it chooses; zero where it ends the request
	// Ended is why nobody is chosen: the *policy.Fault of a stage whose on_error is
	// fail, or a *policy.EmptiedError. Nil where somebody is.
	Ended error
	// Decision is whole, with the fault in it where the fallback had to decide; as
	// far as the pipeline came where the request is ended. It is the caller's.
	Decision *policy.Decision
}

// Explain asks a kept revision, the active one for 0, what it chooses for a
// recorded request: the same bits as it chose then, unless a stage keeps state. A
// request that pinned one rank is answered by the pin, as it was. Nothing of it
// is seen outside and the counts and guards of what serves do not hear of it. A
// *LackingError when the recording lacks a column, an *OverrideError when the
// revision does not take the request's overrides, ErrNoPolicy, ErrNoRevision,
// ErrNoActive.
func (s *PolicySource) Explain(ctx context.Context, name string, revision int, frame *policy.Recording) (ExplainReport, error) {
	el, err := s.explained(name, revision)
	if err != nil {
		return ExplainReport{}, err
	}
	if len(frame.Rows()) == 0 {
		return ExplainReport{}, fmt.Errorf("explain policy %q revision %d: the recording is empty", name, el.Number)
	}
	rev, err := s.build(scoped(ctx, "explain"), name, &el)
	if err != nil {
		return ExplainReport{}, fmt.Errorf("explain policy %q revision %d: %w", name, el.Number, err)
	}
	defer rev.Retire()
	out := ExplainReport{Policy: name, Revision: el.Number, Digests: rev.Digests(), Stages: rev.Stages(), Decision: &policy.Decision{}}
	if err := out.decide(ctx, rev, frame); err != nil {
		return ExplainReport{}, err
	}
	return out, nil
}

// decide goes the way that the request went. rev is a copy that nobody else
// asks, so that its guard and counts are nobody's.
func (r *ExplainReport) decide(ctx context.Context, rev *policy.Revision, frame *policy.Recording) error {
	var t policy.Table
	lacking := frame.Table(&t, rev.Columns())
	t.Quiet = true
	if field, ok := errors.AsType[*fleet.FieldError](rev.CheckOverrides(t.Overrides)); ok {
		return &OverrideError{r.Policy, r.Revision, field.Field, field.Allowed}
	}
	if t.Flags&uint32(abi.FlagPinned) != 0 && t.Len() == 1 {
		rev.Fix(&t, r.Decision, 0, policy.ByPin)
		r.Worker = t.Rows[0]
		return nil
	}
	if len(lacking) > 0 {
		return &LackingError{r.Policy, r.Revision, lacking}
	}
	err := rev.Decide(ctx, &t, r.Decision)
	if _, failed := errors.AsType[*policy.Fault](err); failed || errors.Is(err, policy.ErrEmptied) {
		r.Ended = err
		return nil
	}
	if err != nil {
		return fmt.Errorf("explain policy %q revision %d: %w", r.Policy, r.Revision, err)
	}
	r.Worker = t.Rows[r.Decision.Row]
	return nil
}

// explained finds what a revision is made from.
func (s *PolicySource) explained(name string, revision int) (historyElement, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.find(name)
	if err != nil {
		return historyElement{}, err
	}
	if revision == 0 {
		revision = n.history.Active
	}
	if revision == 0 {
		return historyElement{}, fmt.Errorf("policy %q: %w", name, ErrNoActive)
	}
	el, err := n.revisionOf(revision)
	if err != nil {
		return historyElement{}, err
	}
	return *el, nil
}
