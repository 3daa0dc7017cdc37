package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/routerd/routerd/core/policy"
)

// Errors of rollouts that callers branch on.
var (
	// ErrNoActive is a canary or a shadow beside no active revision.
	ErrNoActive = errors.New("no revision is active")
	// ErrNoRollout is a promotion without a canary or a shadow.
	ErrNoRollout = errors.New("neither a canary nor a shadow is running")
)

// activation is a change of the active revision to be made.
type activation struct {
	name, what, by, why string
	number              int
	endCanary           bool
	endShadow           bool
}

// Activate makes a kept revision the active one and returns the numbers of the
// active and the one before it. No decision that acquires after it returned uses
// the old one. Activating the active revision again gives it another chance when
// it has tripped or its fallback stands in for it, and else changes nothing. A
// canary or a shadow of the revision ends; others go on beside the new one.
func (s *PolicySource) Activate(ctx context.Context, name string, number int, by string, more ...Because) (active, previous int, err error) {
	return s.activate(ctx, activation{name: name, number: number, what: whatActivate, by: by, why: whyOf("", more)})
}

// Rollback undoes: while a canary runs, it ends the canary and leaves the active
// revision; else it activates the revision that was active before, so that the
// rollback of a rollback goes forth again. With to not 0 it ends the canary and
// activates that kept revision. What is activated is made anew, so one that had
// tripped gets another chance: in an incident a rollback goes where it says, and
// the guard stands behind it. Whoever asks for it is to be told by
// PolicyInfo.LastTrip. A shadow of another revision goes on.
// ErrNoHistory when there is nothing to go back to.
func (s *PolicySource) Rollback(ctx context.Context, name string, to int, by string, more ...Because) (active, previous int, err error) {
	to, done, err := s.goBack(name, to, by, more)
	if err != nil || done {
		return s.numbers(name, err)
	}
	return s.activate(ctx, activation{name: name, number: to, what: whatRollback, by: by, why: whyOf("", more), endCanary: true})
}

// goBack finds the revision that a rollback activates; done when it was only
// the canary that had to end.
func (s *PolicySource) goBack(name string, to int, by string, more []Because) (number int, done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.find(name)
	if err != nil {
		return 0, false, err
	}
	h := &n.history
	if c := h.Canary; c != nil && (to == 0 || to == h.Active) {
		_, err := s.endCanary(n, Change{Who: by, What: whatRollback, Revision: h.Active, Previous: c.Revision, Why: whyOf("the canary was ended", more)})
		return h.Active, true, err
	}
	if to == 0 {
		to = h.Previous
	}
	if to == 0 {
		return 0, false, fmt.Errorf("roll policy %q back: %w", name, ErrNoHistory)
	}
	return to, false, nil
}

// Promote makes the canary's revision, or else the shadow's, the active one; the
// canary and the shadow end. ErrNoRollout when there is neither.
func (s *PolicySource) Promote(ctx context.Context, name, by string, more ...Because) (active, previous int, err error) {
	s.mu.Lock()
	n, err := s.find(name)
	number := 0
	if err == nil {
		switch h := &n.history; {
		case h.Canary != nil:
			number = h.Canary.Revision
		case h.Shadow != nil:
			number = h.Shadow.Revision
		default:
			err = fmt.Errorf("promote policy %q: %w", name, ErrNoRollout)
		}
	}
	s.mu.Unlock()
	if err != nil {
		return 0, 0, err
	}
	return s.activate(ctx, activation{name: name, number: number, what: whatPromote, by: by, why: whyOf("", more), endCanary: true, endShadow: true})
}

// find returns a policy. s.mu is held.
func (s *PolicySource) find(name string) (*named, error) {
	if s.closed {
		return nil, fmt.Errorf("policy %q: %w", name, errSourceClosed)
	}
	n := s.policies[name]
	if n == nil {
		return nil, fmt.Errorf("policy %q: %w", name, ErrNoPolicy)
	}
	return n, nil
}

// revisionOf finds a kept revision of the policy.
func (n *named) revisionOf(number int) (*historyElement, error) {
	el := n.history.find(number)
	if el == nil {
		return nil, fmt.Errorf("policy %q revision %d: %w", n.history.Name, number, ErrNoRevision)
	}
	return el, nil
}

func (s *PolicySource) activate(ctx context.Context, a activation) (active, previous int, err error) {
	el, err := s.activateMade(a)
	if err != nil || el == nil {
		return s.numbers(a.name, err)
	}
	rev, err := s.build(ctx, a.name, el)
	if err != nil {
		return 0, 0, fmt.Errorf("activate policy %q revision %d: %w", a.name, a.number, err)
	}
	s.mu.Lock()
	n, err := s.find(a.name)
	if err == nil {
		err = s.switchTo(n, rev, a)
	}
	s.mu.Unlock()
	if err != nil {
		rev.Retire()
	}
	return s.numbers(a.name, err)
}

// activateMade activates a revision that needs no making; else it returns what
// the revision is to be made from.
func (s *PolicySource) activateMade(a activation) (*historyElement, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.find(a.name)
	if err != nil {
		return nil, err
	}
	el, err := n.revisionOf(a.number)
	if err != nil {
		return nil, err
	}
	switch {
	case n.history.Active == a.number && n.problem == "":
		return nil, s.retry(n, a)
	case n.canary != nil && n.canary.Number() == a.number:
		n.canary.Retry() // one that has just tripped was asked for all the same
		return nil, s.switchTo(n, n.canary, a)
	case n.ready != nil && n.ready.Number() == a.number:
		if err := s.switchTo(n, n.ready, a); err != nil {
			return nil, err
		}
		n.ready = nil
		return nil, nil
	}
	kept := *el
	return &kept, nil
}

// retry gives the active revision another chance. s.mu is held.
func (s *PolicySource) retry(n *named, a activation) error {
	if n.active.State() != policy.Tripped && n.history.Trip == nil {
		n.active.Retry()
		return nil
	}
	next := n.history.copied()
	next.note(Change{Who: a.by, What: whatRetry, Revision: a.number, Why: a.why})
	next.Trip = nil
	if err := s.commit(n, next); err != nil {
		return err
	}
	n.active.Retry()
	return nil
}

func (s *PolicySource) numbers(name string, err error) (active, previous int, _ error) {
	if err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.policies[name]
	if n == nil {
		return 0, 0, fmt.Errorf("policy %q: %w", name, ErrNoPolicy)
	}
	return n.history.Active, n.history.Previous, nil
}

// switchTo writes an activation down, then publishes rev, which stays the
// caller's after an error. s.mu is held.
func (s *PolicySource) switchTo(n *named, rev *policy.Revision, a activation) error {
	el, err := n.revisionOf(a.number)
	if err != nil {
		return err
	}
	next := n.history.copied()
	if seed := s.configured(a.name); seed != "" && seed == specDigest(el.Given) {
		next.Seed = seed // as if the configuration had activated it
	}
	next.activate(a.number, a.by, now())
	next.Trip = nil // also when it is the same revision made anew
	next.note(Change{Who: a.by, What: a.what, Revision: a.number, Previous: n.history.Active, Why: a.why})
	if next.Canary != nil && (a.endCanary || next.Canary.Revision == a.number) {
		next.Canary = nil
	}
	if next.Shadow != nil && (a.endShadow || next.Shadow.Revision == a.number) {
		next.Shadow = nil
	}
	if err := s.commit(n, next); err != nil {
		return err
	}
	if err := s.publish(n, rev); err != nil {
		return fmt.Errorf("activate policy %q revision %d: %w", a.name, a.number, err)
	}
	s.log.Info("policy activated", slog.String("policy", a.name), slog.Int("revision", a.number),
		slog.Int("previous", next.Previous), slog.String("what", a.what), slog.String("by", a.by), slog.String("why", a.why))
	return s.settle(n)
}

// commit writes a policy's next state down and makes it the state. s.mu is held.
func (s *PolicySource) commit(n *named, next history) error {
	if err := next.save(s.dir); err != nil {
		return err
	}
	n.history = next
	return nil
}

// settle ends the canary and the shadow that the history no longer has. s.mu is
// held.
func (s *PolicySource) settle(n *named) error {
	var err error
	if n.canary != nil && n.history.Canary == nil {
		err = s.dropCanary(n)
	}
	if n.shadow != nil && n.history.Shadow == nil {
		err = errors.Join(err, s.dropShadow(n))
	}
	return err
}
