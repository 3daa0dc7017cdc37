package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/internal/testkit"
)

func TestARemovedPolicyLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Run("first life", func(t *testing.T) {
		b := openBench(t, dir)
		b.upload(t, "high", highest())
		b.put(t, "p1", spec("module:high"))
		b.put(t, "p1", spec("builtin:least-load"))
		b.activate(t, "p1", 1)
		b.reload(t, host.PolicyConfig{Rules: []host.Rule{{Model: "m", Policy: "p1"}}})
		if err := b.source.Remove(t.Context(), "p1", "test"); !errors.Is(err, host.ErrPolicyInUse) {
			t.Errorf("remove of a policy that a rule names: got %v", err)
		}
		held, err := b.source.Resolve(fleet.PartitionKey{Model: "m"}, "")
		if err != nil {
			t.Fatal(err)
		}
		b.reload(t, host.PolicyConfig{})
		if err := b.source.Remove(t.Context(), "p1", "test"); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "modules that are not used have gone", func() bool { return b.rt.Usage().Modules == 0 })
		l := held.Acquire(policy.Ask{})
		if l.Spec().Scorers[0].Use != policy.DefaultScorer {
			t.Errorf("a handle that is still held decides by %v", l.Spec())
		}
		l.Release()
		if err := b.modules.Delete("high"); err != nil {
			t.Errorf("the module is still pinned: %v", err)
		}
		if err := b.source.Remove(t.Context(), "p1", "test"); !errors.Is(err, host.ErrNoPolicy) {
			t.Errorf("removed twice: got %v", err)
		}
		// The name is free: it begins anew.
		if n := b.put(t, "p1", spec("builtin:least-load")).Number; n != 1 {
			t.Errorf("put again it is revision %d", n)
		}
		if err := b.source.Remove(t.Context(), "p1", "test"); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(filepath.Join(dir, "policies", "p1.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

func TestPoliciesThatTheConfigurationNamesAreNotRemoved(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.reload(t, host.PolicyConfig{
		Seeds: map[string]policy.Spec{"seeded": spec("builtin:least-load"), "other": spec("builtin:least-load")},
	})
	b.put(t, "p1", spec("builtin:least-load"))
	b.activate(t, "p1", 1)
	b.reload(t, host.PolicyConfig{Seeds: map[string]policy.Spec{"seeded": spec("builtin:least-load")}, Models: map[string]string{"m": "p1"}})
	for _, name := range []string{"default", "seeded", "p1"} {
		if err := b.source.Remove(t.Context(), name, "test"); !errors.Is(err, host.ErrPolicyInUse) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := b.source.Remove(t.Context(), "other", "test"); err != nil {
		t.Errorf("a seed that is gone: %v", err)
	}
}
