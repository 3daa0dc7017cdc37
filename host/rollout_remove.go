package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/durable"
)

// ErrPolicyInUse is the removal of a policy that the configuration names.
var ErrPolicyInUse = errors.New("the policy is in use")

// Remove forgets a policy with all its revisions and its history; modules that
// no other revision pins may be deleted then. The policy "default" and those that
// rules, models or seeds of the configuration name are not removed:
// ErrPolicyInUse, with the key. Whoever still holds the policy's handle decides by
// the built-in default.
func (s *PolicySource) Remove(_ context.Context, name, by string, more ...Because) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.find(name)
	if err != nil {
		return err
	}
	if key := s.namedBy(name); key != "" {
		return fmt.Errorf("remove policy %q: %w: %s", name, ErrPolicyInUse, key)
	}
	if err := durable.Remove(filepath.Join(s.dir, name+".json")); err != nil {
		return fmt.Errorf("remove policy %q: %w", name, err)
	}
	s.log.Info("policy removed", slog.String("policy", name), slog.Int("active", n.history.Active), slog.String("by", by), slog.String("why", whyOf("", more)))
	errs := []error{s.dropCanary(n), s.dropShadow(n)}
	handles := maps.Clone(*s.handles.Load())
	h, published := handles[name]
	delete(handles, name)
	s.handles.Store(&handles)
	delete(s.policies, name)
	revs := slices.DeleteFunc([]*policy.Revision{n.ready, n.active}, func(r *policy.Revision) bool { return r == nil })
	for _, r := range revs {
		r.Retire()
	}
	if published {
		h.SetObservers()
		errs = append(errs, s.closeHandles(map[string]*policy.Handle{name: h}, revs))
	}
	s.drop(n, n.history.Revisions)
	s.removed(name)
	return errors.Join(errs...)
}

// namedBy is the key of the configuration in force that names a policy, empty
// for none. s.mu is held.
func (s *PolicySource) namedBy(name string) string {
	if name == fleet.DefaultName {
		return "it is the policy that always exists"
	}
	if _, ok := s.seeds[name]; ok {
		return "policies." + name
	}
	names := s.routing.Load().names()
	for _, key := range slices.Sorted(maps.Keys(names)) {
		if names[key] == name {
			return key
		}
	}
	return ""
}
