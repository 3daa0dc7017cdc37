package host

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
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

// ExplainReport is what a revision chooses for a recorded request.
type ExplainReport struct {
	Policy   string
	Revision int
	Digests  []string
	Stages   []policy.StageName // in the order of the decision's scores and masks
	Worker   fleet.Worker       // that it chooses
	// Decision is whole, with the fault in it where the fallback had to decide.
	// It is the caller's.
	Decision *policy.Decision
}

// Explain asks a kept revision, the active one for 0, what it chooses for a
// recorded request: the same bits as it chose then, unless a stage keeps state.
// Nothing of it is seen outside and its guard and counts do not hear of it. A
// *LackingError when the recording lacks a column, policy.ErrEmptied when the
// revision's filters leave nothing, ErrNoPolicy, ErrNoRevision, ErrNoActive.
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
	var t policy.Table
	if lacking := frame.Table(&t, rev.Columns()); len(lacking) > 0 {
		return ExplainReport{}, &LackingError{name, el.Number, lacking}
	}
	d := &policy.Decision{}
	err = rev.Replay(ctx, &t, d)
	if fault, ok := errors.AsType[*policy.Fault](err); ok {
		rev.ReplayFallback(ctx, &t, d)
		d.Fault, err = fault, nil
	}
	if err != nil {
		return ExplainReport{}, fmt.Errorf("explain policy %q revision %d: %w", name, el.Number, err)
	}
	return ExplainReport{
		Policy: name, Revision: el.Number, Digests: rev.Digests(), Stages: rev.Stages(), Worker: t.Rows[d.Row], Decision: d,
	}, nil
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
