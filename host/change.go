package host

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/routerd/routerd/core/policy"
)

// RevisionInfo is a kept revision as the admin API shows it.
type RevisionInfo struct {
	Name    string
	Number  int
	State   policy.State // ready, active, tripped or retired
	Spec    policy.Spec  // every module pinned
	Digests []string
	At      time.Time
	By      string
}

// PolicyInfo is a policy as the admin API shows it.
type PolicyInfo struct {
	Name        string
	Active      int // 0 for none
	Previous    int // what rollback goes to, 0 for none
	ActivatedBy string
	ActivatedAt time.Time
	Drifted     bool   // the API set another spec than the configuration's
	Problem     string // why the fallback stands in; empty when it does not
	Stats       policy.Stats
	Revisions   []RevisionInfo // by number
}

// Activate makes a kept revision the active one and returns the numbers of the
// active and the one before it. No decision that acquires after it returned uses
// the old one. Activating the active revision again gives it another chance when
// it has tripped or its fallback stands in for it, and else changes nothing.
func (s *PolicySource) Activate(ctx context.Context, name string, number int, by string) (active, previous int, err error) {
	rev, el, err := s.take(name, number)
	if err != nil || rev == nil && el == nil {
		return s.numbers(name, err)
	}
	if rev == nil {
		if rev, err = s.build(ctx, name, el); err != nil {
			return 0, 0, fmt.Errorf("activate policy %q revision %d: %w", name, number, err)
		}
	}
	return s.switchTo(name, number, rev, by)
}

// take finds what Activate works on: the revision when it is made already, else
// what it is to be made from; neither when it is active and well.
func (s *PolicySource) take(name string, number int) (*policy.Revision, *historyElement, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.policies[name]
	if n == nil {
		return nil, nil, fmt.Errorf("policy %q: %w", name, ErrNoPolicy)
	}
	el := n.history.find(number)
	if el == nil {
		return nil, nil, fmt.Errorf("policy %q revision %d: %w", name, number, ErrNoRevision)
	}
	if n.history.Active == number && n.problem == "" {
		n.active.Retry()
		return nil, nil, nil
	}
	if n.ready != nil && n.ready.Number() == number {
		rev := n.ready
		n.ready = nil
		return rev, el, nil
	}
	kept := *el
	return nil, &kept, nil
}

func (s *PolicySource) numbers(name string, err error) (active, previous int, _ error) {
	if err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.policies[name].history
	return h.Active, h.Previous, nil
}

// switchTo writes the change down, then publishes.
func (s *PolicySource) switchTo(name string, number int, rev *policy.Revision, by string) (active, previous int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.policies[name]
	if s.closed || n.history.find(number) == nil {
		rev.Retire()
		return 0, 0, fmt.Errorf("policy %q revision %d: %w", name, number, ErrNoRevision)
	}
	next := n.history.copied()
	next.activate(number, by, now())
	if err := next.save(s.dir); err != nil {
		rev.Retire()
		return 0, 0, err
	}
	n.history = next
	if err := s.publish(n, rev); err != nil {
		return 0, 0, fmt.Errorf("activate policy %q revision %d: %w", name, number, err)
	}
	n.problem = ""
	s.log.Info("policy activated", slog.String("policy", name), slog.Int("revision", number),
		slog.Int("previous", next.Previous), slog.String("by", by))
	return next.Active, next.Previous, nil
}

// Rollback activates the revision that was active before, or the kept revision
// to when it is not 0. ErrNoHistory when there is none.
func (s *PolicySource) Rollback(ctx context.Context, name string, to int, by string) (active, previous int, err error) {
	if to == 0 {
		s.mu.Lock()
		n := s.policies[name]
		if n != nil {
			to = n.history.Previous
		}
		s.mu.Unlock()
		if n == nil {
			return 0, 0, fmt.Errorf("policy %q: %w", name, ErrNoPolicy)
		}
		if to == 0 {
			return 0, 0, fmt.Errorf("roll policy %q back: %w", name, ErrNoHistory)
		}
	}
	return s.Activate(ctx, name, to, by)
}

// List describes all policies by name.
func (s *PolicySource) List() []PolicyInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]PolicyInfo, 0, len(s.policies))
	for _, name := range slices.Sorted(maps.Keys(s.policies)) {
		out = append(out, s.describe(s.policies[name]))
	}
	return out
}

// Show describes one policy; ErrNoPolicy when there is none.
func (s *PolicySource) Show(name string) (PolicyInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.policies[name]
	if n == nil {
		return PolicyInfo{}, fmt.Errorf("policy %q: %w", name, ErrNoPolicy)
	}
	return s.describe(n), nil
}

func (s *PolicySource) describe(n *named) PolicyInfo {
	h := &n.history
	out := PolicyInfo{
		Name: h.Name, Active: h.Active, Previous: h.Previous, ActivatedBy: h.ActivatedBy, ActivatedAt: h.ActivatedAt, Problem: n.problem,
	}
	if n.active != nil {
		out.Stats = n.active.Stats()
	}
	if seed, ok := s.seeds[h.Name]; ok && h.Active != 0 {
		out.Drifted = specDigest(seed) != specDigest(h.find(h.Active).Given)
	}
	for i := range h.Revisions {
		out.Revisions = append(out.Revisions, n.info(&h.Revisions[i]))
	}
	return out
}

func (n *named) info(el *historyElement) RevisionInfo {
	state := policy.Ready
	switch {
	case el.Number == n.history.Active && n.active != nil:
		state = n.active.State()
	case el.Used:
		state = policy.Retired
	}
	return RevisionInfo{
		Name: n.history.Name, Number: el.Number, State: state, Spec: el.Spec,
		Digests: slices.Clone(el.Digests), At: el.At, By: el.By,
	}
}

func columnNames(set policy.ColumnSet) []string { return set.Names() }
