package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// Rule gives the requests of a model, group and class a policy; an empty field
// matches all.
type Rule struct{ Model, Group, Class, Policy string }

// routing tells which policy a request gets. It is immutable.
type routing struct {
	rules  []Rule
	models map[string]string
	def    string
}

func routingOf(cfg PolicyConfig) *routing {
	r := &routing{rules: slices.Clone(cfg.Rules), models: maps.Clone(cfg.Models), def: cfg.Default}
	if r.def == "" {
		r.def = fleet.DefaultName
	}
	return r
}

func (r *routing) nameFor(key fleet.PartitionKey, class string) string {
	for _, rule := range r.rules {
		if (rule.Model == "" || rule.Model == key.Model) && (rule.Group == "" || rule.Group == key.Group) && (rule.Class == "" || rule.Class == class) {
			return rule.Policy
		}
	}
	if name := r.models[key.Model]; name != "" {
		return name
	}
	return r.def
}

// names has for each policy that is named the key of the configuration that
// names it.
func (r *routing) names() map[string]string {
	named := map[string]string{"routing.default": r.def}
	for i, rule := range r.rules {
		named[fmt.Sprintf("routing.rules[%d].policy", i)] = rule.Policy
	}
	for model, name := range r.models {
		named["models."+model+".policy"] = name
	}
	return named
}

// check refuses a policy that nobody has made: its requests could not be
// routed.
func (r *routing) check(made []string) error {
	names := r.names()
	for _, field := range slices.Sorted(maps.Keys(names)) {
		if !slices.Contains(made, names[field]) {
			return &fleet.FieldError{Field: field, Value: names[field], Allowed: "a policy with an active revision: " + strings.Join(made, ", ")}
		}
	}
	return nil
}

// Resolve returns the handle of the policy for a partition and a class: the
// first rule that matches, else the model's, else the default. It waits for
// nothing. ErrNoPolicy when the name that applies has no active revision.
func (s *PolicySource) Resolve(key fleet.PartitionKey, class string) (*policy.Handle, error) {
	name := s.routing.Load().nameFor(key.Normalised(), class)
	if h, ok := (*s.handles.Load())[name]; ok {
		return h, nil
	}
	return nil, fmt.Errorf("resolve policy %q for %s: %w, or it has no active revision", name, key, ErrNoPolicy)
}

// Forget gives up the state that modules keep for a partition, in which nobody decides
// any more.
func (s *PolicySource) Forget(key fleet.PartitionKey) {
	if err := s.rt.forget(key); err != nil {
		s.log.Error("state of modules not given up", "partition", key.String(), "err", err)
	}
}
