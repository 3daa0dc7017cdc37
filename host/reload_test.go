package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/plugins/abi"
)

func (b *bench) prepare(t testing.TB, cfg host.PolicyConfig) *host.PreparedConfig {
	t.Helper()
	p, err := b.source.PrepareConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (b *bench) reload(t testing.TB, cfg host.PolicyConfig) {
	t.Helper()
	if err := b.prepare(t, cfg).Publish(); err != nil {
		t.Fatal(err)
	}
}

// resolved is the policy and the revision that a model gets.
func (b *bench) resolved(t testing.TB, model string) (name string, revision int) {
	t.Helper()
	h, err := b.source.Resolve(fleet.PartitionKey{Model: model}, "")
	if err != nil {
		t.Fatal(err)
	}
	rev := h.Active()
	defer rev.Release()
	return rev.Name(), rev.Number()
}

func (b *bench) show(t testing.TB, name string) host.PolicyInfo {
	t.Helper()
	p, err := b.source.Show(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func seeded(specs map[string]policy.Spec, rules ...host.Rule) host.PolicyConfig {
	return host.PolicyConfig{Seeds: specs, Rules: rules}
}

func TestAPreparedConfigurationIsNotSeenBeforeItIsPublished(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "high", highest())
	before := b.source.List()
	cfg := seeded(map[string]policy.Spec{"p1": spec("module:high")}, host.Rule{Model: "m", Policy: "p1"})
	p := b.prepare(t, cfg)
	if d := cmp.Diff(before, b.source.List()); d != "" {
		t.Errorf("before Publish (-before +after):\n%s", d)
	}
	if name, _ := b.resolved(t, "m"); name != "default" {
		t.Errorf("before Publish the rule gives %q", name)
	}
	if err := p.Publish(); err != nil {
		t.Fatal(err)
	}
	if name, revision := b.resolved(t, "m"); name != "p1" || revision != 1 {
		t.Errorf("after Publish the rule gives %s@%d, want p1@1", name, revision)
	}
	if p := b.show(t, "p1"); p.ActivatedBy != "config" || p.Drifted {
		t.Errorf("got %+v, want it set by config and not drifted", p)
	}
	if err := p.Publish(); err == nil {
		t.Error("a configuration was published twice")
	}
}

func TestADiscardedConfigurationLeavesNothing(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "high", highest())
	before := b.source.List()
	p := b.prepare(t, seeded(map[string]policy.Spec{"p1": spec("module:high"), "p2": spec("module:high", "builtin:least-load")}))
	for range 2 {
		if err := p.Discard(); err != nil {
			t.Error(err)
		}
	}
	if d := cmp.Diff(before, b.source.List()); d != "" {
		t.Errorf("policies (-before +after):\n%s", d)
	}
	testkit.Until(t, "modules that are not used have gone", func() bool { return b.rt.Usage().Modules == 0 })
	if err := b.modules.Delete("high"); err != nil {
		t.Errorf("the module is still pinned: %v", err)
	}
	if err := p.Publish(); err == nil {
		t.Error("a discarded configuration was published")
	}
}

func TestABadConfigurationIsRefusedAsAWhole(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "trap", Guest{Score: Op(Unreachable)}.Bytes())
	good := spec("builtin:least-load")
	before := b.source.List()
	for name, cfg := range map[string]host.PolicyConfig{
		"a seed without its module": seeded(map[string]policy.Spec{"p1": good, "p2": spec("module:gone")}),
		"a seed that traps":         seeded(map[string]policy.Spec{"p1": good, "p2": spec("module:trap")}),
		"a rule for nobody":         seeded(map[string]policy.Spec{"p1": good}, host.Rule{Policy: "p3"}),
		"a seed without scorers":    seeded(map[string]policy.Spec{"p1": good, "p2": {}}),
		"a name that is none":       seeded(map[string]policy.Spec{"../p1": good}),
	} {
		if _, err := b.source.PrepareConfig(t.Context(), cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if d := cmp.Diff(before, b.source.List()); d != "" {
			t.Errorf("%s (-before +after):\n%s", name, d)
		}
	}
	testkit.Until(t, "modules that are not used have gone", func() bool { return b.rt.Usage().Modules == 0 })
}

func TestAReloadFollowsTheSeedRule(t *testing.T) {
	b := openBench(t, t.TempDir())
	least, round := spec("builtin:least-load"), spec("builtin:round-robin")
	b.reload(t, seeded(map[string]policy.Spec{"p1": least}))
	b.reload(t, seeded(map[string]policy.Spec{"p1": least}))
	if p := b.show(t, "p1"); p.Active != 1 || len(p.Revisions) != 1 {
		t.Errorf("the same seed again: got %+v", p)
	}
	b.reload(t, seeded(map[string]policy.Spec{"p1": round}))
	if p := b.show(t, "p1"); p.Active != 2 || p.Previous != 1 {
		t.Errorf("a changed seed: got %+v", p)
	}
	b.reload(t, seeded(nil))
	if p := b.show(t, "p1"); p.Active != 2 || p.Drifted {
		t.Errorf("a removed seed removes nothing: got %+v", p)
	}
	b.activate(t, "p1", 1)
	b.reload(t, seeded(map[string]policy.Spec{"p1": spec("builtin:kv-aware")}))
	if p := b.show(t, "p1"); p.Active != 1 || !p.Drifted {
		t.Errorf("a seed over what the API set: got %+v", p)
	}
}

// Once the API activated what the configuration says, the policy follows the
// configuration again.
func TestAPolicyFollowsTheConfigurationAgain(t *testing.T) {
	b := openBench(t, t.TempDir())
	file := func(use string) host.PolicyConfig { return seeded(map[string]policy.Spec{"p1": spec(use)}) }
	byAPI := func(use string) {
		t.Helper()
		b.activate(t, "p1", b.put(t, "p1", spec(use)).Number)
	}
	b.reload(t, file("builtin:kv-aware"))
	byAPI("builtin:round-robin")
	drifting := b.prepare(t, file("builtin:least-load"))
	if d := cmp.Diff([]string{"p1"}, drifting.Drifted()); d != "" {
		t.Errorf("left alone (-want +got):\n%s", d)
	}
	if err := drifting.Publish(); err != nil {
		t.Fatal(err)
	}
	if p := b.show(t, "p1"); !p.Drifted || p.ActivatedBy == "config" {
		t.Fatalf("got %+v, want it drifted", p)
	}
	byAPI("builtin:least-load") // what the file says
	again := b.prepare(t, file("builtin:kv-aware"))
	if again.Drifted() != nil {
		t.Errorf("%v are left alone", again.Drifted())
	}
	if err := again.Publish(); err != nil {
		t.Fatal(err)
	}
	if p := b.show(t, "p1"); p.ActivatedBy != "config" || p.Drifted || p.Active != 1 {
		t.Errorf("got %+v, want revision 1 again, set by config", p)
	}
}

func TestASeedGivesWayToAnActivationAfterItWasPrepared(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "high", highest())
	b.put(t, "p1", spec("builtin:least-load"))
	p := b.prepare(t, seeded(map[string]policy.Spec{"p1": spec("module:high")}))
	b.activate(t, "p1", 1)
	if err := p.Publish(); err != nil {
		t.Fatal(err)
	}
	if p := b.show(t, "p1"); p.Active != 1 || !p.Drifted || len(p.Revisions) != 1 {
		t.Errorf("got %+v, want revision 1, drifted", p)
	}
	testkit.Until(t, "modules that are not used have gone", func() bool { return b.rt.Usage().Modules == 0 })
}

func TestAReloadThatCannotBeWrittenChangesNothing(t *testing.T) {
	b := openBench(t, t.TempDir())
	before := b.source.List()
	p := b.prepare(t, seeded(map[string]policy.Spec{"p1": spec("builtin:least-load"), "p2": spec("builtin:least-load")}, host.Rule{Policy: "p1"}))
	if err := os.MkdirAll(filepath.Join(b.dir, "policies", "p2.json", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(); err == nil {
		t.Error("a file that could not be written is no error")
	}
	if d := cmp.Diff(before, b.source.List()); d != "" {
		t.Errorf("policies (-before +after):\n%s", d)
	}
	if name, _ := b.resolved(t, "m"); name != "default" {
		t.Errorf("the rule is in force: got %q", name)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "policies", "p1.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the first policy's file is still there: %v", err)
	}
}

func TestTheGuardIsTurnedOffAndOnWhileItRuns(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "bad", trapping())
	b.put(t, "default", spec("module:bad"))
	b.activate(t, "default", 2)
	state := func() policy.State { return b.show(t, "default").Revisions[1].State }
	calls := func(n int) {
		for range n {
			b.decide(t, "default", badSeed)
		}
	}
	if calls(5); state() != policy.Tripped {
		t.Fatalf("five traps leave the revision %s", state())
	}
	b.reload(t, host.PolicyConfig{GuardOff: true})
	faults := b.show(t, "default").Stats.Faults["unreachable"]
	if calls(5); state() != policy.Active || b.show(t, "default").Stats.Faults["unreachable"] != faults+5 {
		t.Errorf("with the guard off the revision is %s, %v", state(), b.show(t, "default").Stats)
	}
	b.reload(t, host.PolicyConfig{})
	if calls(5); state() != policy.Tripped {
		t.Errorf("with the guard on again the revision is %s", state())
	}
}

// badSeed is what trapping traps for.
const badSeed = 666

// trapping is a good guest that traps for badSeed.
func trapping() []byte {
	return Guest{Name: "trapping", Score: sparing(Op(Unreachable)), ScoreTypes: ColumnTypes}.Bytes()
}

// decide decides once over 4 rows with what model resolves to, as a partition
// does: the observers hear of it.
func (b *bench) decide(t testing.TB, model string, seed uint64) (d policy.Decision, by *policy.Revision) {
	t.Helper()
	h, err := b.source.Resolve(fleet.PartitionKey{Model: model}, "")
	if err != nil {
		t.Fatal(err)
	}
	l := h.Acquire(policy.Ask{Seed: seed})
	defer l.Release()
	if err := l.Decide(context.Background(), rowsOf4(l.Columns, seed), &d); err != nil {
		t.Fatal(err)
	}
	l.Observe(rowsOf4(l.Columns, seed), &d)
	return d, l.Revision
}

func rowsOf4(set policy.ColumnSet, seed uint64) *policy.Table {
	tab := &policy.Table{}
	tab.Reset(4, set)
	for i := range tab.Rows {
		tab.Rows[i] = fleet.Worker{ID: fleet.WorkerID(i + 1)}
	}
	for i, col := 0, tab.Fill(abi.ColLoadActiveRequests); i < len(col); i++ {
		col[i] = float64(i)
	}
	tab.Seed = seed
	return tab
}

func TestAHeaderThatACanaryChoosesByStaysOnTheList(t *testing.T) {
	b := openBench(t, t.TempDir())
	n := b.put(t, "default", spec("builtin:least-load")).Number
	b.canary(t, host.CanarySpec{Revision: n, Header: "x-tier", Value: "gold"})
	var fe *fleet.FieldError
	if err := b.source.CheckHeaders([]string{"x-team"}); !errors.As(err, &fe) || fe.Field != "plugins.headers" {
		t.Errorf("got %v, want the list refused", err)
	}
	if err := b.source.CheckHeaders([]string{"x-team", "x-tier"}); err != nil {
		t.Error(err)
	}
}
