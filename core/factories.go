package core

import (
	"errors"
	"fmt"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// ErrNoPolicy is what Factories answer where no rule matches and there is no
// registry.
var ErrNoPolicy = errors.New("no rule names a policy")

// PolicyFactory makes the policy of a partition and a class, such as a program
// does that embeds the core and has its policies in itself.
type PolicyFactory func(key fleet.PartitionKey, class string) (*policy.Handle, error)

// FactoryRule gives a factory to some partitions and classes; an empty field
// matches all.
type FactoryRule struct {
	Model, Group, Class string
	Make                PolicyFactory
}

// Factories is a SelectionPolicySource of explicit factories: the first rule that
// matches makes the policy; where none does, the registry is asked.
type Factories struct {
	Rules []FactoryRule
	// Registry may be nil: then no match is an error.
	Registry SelectionPolicySource
}

var (
	_ SelectionPolicySource = (*Factories)(nil)
	_ Forgetter             = (*Factories)(nil)
)

// Resolve implements SelectionPolicySource. The factory is called each time that a
// partition is prepared, at a class's first request and when the rules are
// resolved again.
func (f *Factories) Resolve(key fleet.PartitionKey, class string) (*policy.Handle, error) {
	for i := range f.Rules {
		if r := &f.Rules[i]; matches(r.Model, key.Model) && matches(r.Group, key.Group) && matches(r.Class, class) {
			return r.Make(key, class)
		}
	}
	if f.Registry == nil {
		return nil, fmt.Errorf("resolve policy for %s, class %q: %w", key, clip(class, 80), ErrNoPolicy)
	}
	return f.Registry.Resolve(key, class)
}

// Forget implements Forgetter.
func (f *Factories) Forget(key fleet.PartitionKey) {
	for _, r := range forgettersOf(f.Registry) {
		r.Forget(key)
	}
}

func matches(rule, value string) bool { return rule == "" || rule == value }
