package host

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/routerd/routerd/core/policy"
)

// RevisionInfo is a kept revision as the admin API shows it.
type RevisionInfo struct {
	Name    string
	Number  int
	State   policy.State // ready, active, canary, shadow, tripped or retired
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
	Probes      uint64         // of tripped revisions, since the start
	Canary      *CanaryInfo    // nil for none
	Shadow      *ShadowInfo    // nil for none
	Revisions   []RevisionInfo // by number
	History     []Change       // the last 100 changes, the oldest first
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
		History: slices.Clone(h.Changes),
	}
	if n.active != nil {
		out.Stats = n.active.Stats()
		out.Probes = n.watch.probes.Load()
	}
	if seed, ok := s.seeds[h.Name]; ok {
		out.Drifted = h.differs(specDigest(seed))
	}
	for i := range h.Revisions {
		out.Revisions = append(out.Revisions, n.info(&h.Revisions[i]))
	}
	if n.canary != nil {
		c := *h.Canary
		c.Stats = n.canary.Stats()
		out.Canary = &c
	}
	if n.shadow != nil {
		sh := *h.Shadow
		sh.Report = n.shadow.report()
		out.Shadow = &sh
	}
	return out
}

func (n *named) info(el *historyElement) RevisionInfo {
	state := policy.Ready
	switch {
	case el.Number == n.history.Active && n.active != nil:
		if state = n.active.State(); n.distrusted {
			state = policy.Tripped
		}
	case n.canary != nil && el.Number == n.canary.Number():
		if state = n.canary.State(); state == policy.Active {
			state = Canary
		}
	case n.shadow != nil && el.Number == n.history.Shadow.Revision:
		state = Shadow
	case el.Used:
		state = policy.Retired
	}
	return RevisionInfo{
		Name: n.history.Name, Number: el.Number, State: state, Spec: el.Spec,
		Digests: slices.Clone(el.Digests), At: el.At, By: el.By,
	}
}

func columnNames(set policy.ColumnSet) []string { return set.Names() }
