package core_test

import (
	"errors"
	"testing"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// TestFactoriesGoByTheirRules: the first rule that matches makes the policy of a
// partition and a class, else the registry, else it is an error.
func TestFactoriesGoByTheirRules(t *testing.T) {
	made := map[string]*policy.Handle{}
	factory := func(name string) core.PolicyFactory {
		made[name] = handleOf(t, revisionOf(t, name, 1, use("builtin:least-load"), nil))
		return func(fleet.PartitionKey, string) (*policy.Handle, error) { return made[name], nil }
	}
	registry := &policies{handle: handleOf(t, revisionOf(t, "registry", 1, use("builtin:least-load"), nil))}
	f := &core.Factories{Rules: []core.FactoryRule{
		{Model: "m1", Class: "batch", Make: factory("batch")},
		{Group: "g2", Make: factory("group")},
		{Model: "m1", Make: factory("model")},
	}}
	for _, c := range []struct {
		model, group, class, want string
	}{
		{"m1", "g1", "batch", "batch"},
		{"m1", "g2", "batch", "batch"},
		{"m1", "g2", "", "group"},
		{"m1", "g1", "", "model"},
		{"m2", "g1", "batch", "registry"},
	} {
		f.Registry = registry
		h, err := f.Resolve(fleet.PartitionKey{Model: c.model, Group: c.group}, c.class)
		if err != nil {
			t.Fatal(err)
		}
		rev := h.Active()
		if rev.Name() != c.want {
			t.Errorf("%s:%s class %q: got %s, want %s", c.model, c.group, c.class, rev.Name(), c.want)
		}
		rev.Release()
	}
	f.Registry = nil
	if _, err := f.Resolve(fleet.PartitionKey{Model: "m2", Group: "g1"}, ""); !errors.Is(err, core.ErrNoPolicy) {
		t.Errorf("no rule and no registry: got %v", err)
	}
}

// TestAFactorysPolicyDecides: a core whose policies are all its own.
func TestAFactorysPolicyDecides(t *testing.T) {
	least := handleOf(t, revisionOf(t, "mine", 1, use("builtin:least-load"), nil))
	c := core.New(core.DefaultConfig(), core.SelectionHost{}, &core.Factories{Rules: []core.FactoryRule{{
		Make: func(fleet.PartitionKey, string) (*policy.Handle, error) { return least, nil },
	}}}, core.NoIndex{}, nil)
	w := &world{SelectionCore: c}
	w.join(t, record("w1", "m1"))
	sel, err := c.Select(t.Context(), &core.Request{Partition: model("m1")})
	if err != nil || sel.Policy != "mine" {
		t.Errorf("got %+v, %v", sel, err)
	}
}
