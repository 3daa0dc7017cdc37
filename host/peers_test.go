package host_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/plugins/abi"
)

// TestPeersGaps goes through what other routers that carry Wasm got wrong, a
// subtest each. That no guest is handed a body is a line in the guide: there is
// no way for one to ask.
func TestPeersGaps(t *testing.T) {
	t.Run("path on server", peersBytesWithADigest)
	t.Run("lookup by name after a job", peersSynchronousPut)
	t.Run("no replace", peersReplaceAndRollBack)
	t.Run("HashMap order", peersOrderOfTheChain)
	t.Run("lost at restart", peersRestart)
	t.Run("fail-open silently, fail-closed hard", peersChoiceOnError)
	t.Run("no metrics", peersMetrics)
	t.Run("100 ms epoch tick, 1,000 ms budget", peersBudget)
	t.Run("fresh instance per call, no state", peersPoolAndState)
	t.Run("global write lock per call", peersParallelCalls)
	t.Run("one instance compile per thread", peersCompileOnce)
	t.Run("strings for header values", peersHeaders)
	t.Run("JSON both ways", peersOneBatchedCall)
	t.Run("no deadline, no page cap", peersLimitsAlwaysOn)
	t.Run("crashed instance reused", peersCrashedInstance)
	t.Run("timer drain", peersDrain)
	t.Run("mutable tag", peersPinned)
	t.Run("stale docs on limits", peersLimitsTold)
}

func peersBytesWithADigest(t *testing.T) {
	b := openBench(t, t.TempDir())
	m, _, err := b.modules.Put("lowest", strings.NewReader(string(lowest())), "")
	if err != nil || m.Digest != host.Digest(lowest()) {
		t.Errorf("got %+v, %v, want the digest of the bytes", m, err)
	}
	if _, _, err := b.modules.Put("other", strings.NewReader("x"), host.Digest(lowest())); err == nil {
		t.Error("bytes with another digest than was declared are accepted")
	}
	b.put(t, "p1", spec("module:lowest@"+m.Digest))
}

func peersSynchronousPut(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "bad", Guest{Score: Op(Unreachable)}.Bytes())
	_, _, err := b.source.Put(context.Background(), "p1", spec("module:bad"), "test")
	var le *host.LoadError
	if !errors.As(err, &le) || le.Step != host.StepSelfTest {
		t.Errorf("got %v, want the refusal at once", err)
	}
	b.upload(t, "lowest", lowest())
	if info := b.put(t, "p1", spec("module:lowest")); info.Number != 1 || len(info.Digests) != 1 {
		t.Errorf("got %+v, want revision 1 with its digest", info)
	}
}

func peersReplaceAndRollBack(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "mod", lowest())
	b.activate(t, "default", b.put(t, "default", spec("module:mod")).Number)
	if row, _, _ := b.pick(t, fleet.PartitionKey{}); row != 0 {
		t.Errorf("row %d, want 0", row)
	}
	b.upload(t, "mod", highest())
	b.activate(t, "default", b.put(t, "default", spec("module:mod")).Number)
	if row, _, _ := b.pick(t, fleet.PartitionKey{}); row != 3 {
		t.Errorf("replaced: row %d, want 3", row)
	}
	if _, _, err := b.source.Rollback(context.Background(), "default", 0, "test"); err != nil {
		t.Fatal(err)
	}
	if row, _, _ := b.pick(t, fleet.PartitionKey{}); row != 0 {
		t.Errorf("rolled back: row %d, want 0", row)
	}
}

func peersOrderOfTheChain(t *testing.T) {
	// The sum of the same terms begun with another pair has other last bits, so that
	// the order shows; and it is the written one in each revision.
	r := newRuntime(t)
	byName := map[string][]byte{}
	var s policy.Spec
	want := 0.0
	for _, v := range []float64{0.1, 0.4, 0.2} {
		want += v
		use := "module:m" + string('0'+rune(v*10))
		byName[use] = Guest{Name: "m" + use[8:], ScoreTypes: ColumnTypes, Score: Constant(F64(v))}.Bytes()
		s.Scorers = append(s.Scorers, policy.ScorerSpec{StageSpec: policy.StageSpec{Use: use}})
	}
	for range 20 {
		if d := decided(t, revisionFrom(t, r, s, byName)); d.Totals[0] != want {
			t.Fatalf("total %v, want %v", d.Totals[0], want)
		}
	}
}

func peersRestart(t *testing.T) {
	dir := t.TempDir()
	t.Run("before", func(t *testing.T) {
		b := openBench(t, dir)
		b.upload(t, "mod", highest())
		b.activate(t, "default", b.put(t, "default", spec("module:mod")).Number)
	})
	if row, _, by := openBench(t, dir).pick(t, fleet.PartitionKey{}); row != 3 || by != policy.ByPolicy {
		t.Errorf("row %d by %s, want 3 by the policy", row, by)
	}
}

func peersChoiceOnError(t *testing.T) {
	byName := map[string][]byte{"module:test": Guest{Score: sparing(Op(Unreachable)), ScoreTypes: ColumnTypes}.Bytes()}
	r := newRuntime(t)
	for onError, by := range map[string]policy.By{"fallback": policy.ByFallback, "skip": policy.ByPolicy} {
		s := specOf(abi.KindScorer, false)
		s.Scorers[0].OnError = onError
		if d := decided(t, revisionFrom(t, r, s, byName)); d.By != by || d.Fault == nil || d.Fault.Reason != "unreachable" {
			t.Errorf("%s: by %s with fault %v, want %s and the reason", onError, d.By, d.Fault, by)
		}
	}
	s := specOf(abi.KindScorer, false)
	s.Scorers[0].OnError = "fail"
	rev := revisionFrom(t, r, s, byName)
	tab := &policy.Table{}
	tab.Reset(2, rev.Columns())
	tab.Seed = 666
	var f *policy.Fault
	if err := rev.Decide(context.Background(), tab, &policy.Decision{}); !errors.As(err, &f) {
		t.Errorf("fail: got %v, want the fault", err)
	}
	if rev.Stats().Faults["unreachable"] != 1 {
		t.Errorf("the reason is not counted: %+v", rev.Stats())
	}
}

func peersMetrics(t *testing.T) {
	rt, reg, _ := told(t)
	s := stage(t, rt, Guest{Score: sparing(Op(Unreachable)), ScoreTypes: ColumnTypes}.Bytes(), "")
	_, _, _ = score(s, 2)
	_, _ = s.Score(context.Background(), badTable(s, 2), make([]float64, 2), &policy.StageReport{})
	got := values(t, reg)
	for _, name := range []string{
		"routerd_plugin_calls_total{test}", "routerd_plugin_faults_total{test,unreachable}",
		"routerd_plugin_fuel_total{test}", "routerd_plugin_memory_bytes", "routerd_plugin_instances",
	} {
		if got[name] == 0 {
			t.Errorf("%s is 0 or not there", name)
		}
	}
}

func peersBudget(t *testing.T) {
	s := stage(t, newRuntime(t), Guest{Score: sparing(Loop(Br(0))), ScoreTypes: ColumnTypes}.Bytes(), "")
	began := time.Now()
	_, err := s.Score(context.Background(), badTable(s, 2), make([]float64, 2), &policy.StageReport{})
	var f *policy.Fault
	if !errors.As(err, &f) || f.Reason != "fuel" || time.Since(began) > 100*time.Millisecond {
		t.Errorf("got %v after %s, want fuel used up within a millisecond (asserted at a hundred)", err, time.Since(began))
	}
	rev := revisionOf(t, s) // with a guard
	tab := &policy.Table{}
	tab.Reset(2, rev.Columns())
	tab.Seed = 666
	var d policy.Decision
	for range 3 {
		if err := rev.Decide(context.Background(), tab, &d); err != nil {
			t.Fatal(err)
		}
	}
	if rev.State() != policy.Tripped {
		t.Errorf("after three faults in a row: %s, want tripped", rev.State())
	}
}

func peersPoolAndState(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Instances = 1 })
	plain, stateful := stage(t, r, good(), ""), stage(t, r, keeping().Bytes(), "")
	for i := range 50 {
		if _, _, err := score(plain, 2); err != nil {
			t.Fatal(err)
		}
		if got, _, err := score(stateful, 2); err != nil || got[0] != float64(i+1) {
			t.Fatalf("call %d: %v, %v: the instance was not kept", i, got, err)
		}
	}
	eventually(t, "two instances after 50 calls", func() bool { return r.Usage().Instances == 2 }) // an audit has one for itself, and gives it back
}

// peersParallelCalls has a call that takes long hold nobody up.
func peersParallelCalls(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) {
		c.Instances, c.FuelCap, c.CallDeadline, c.PoolWait = 2, 1_000_000_000, 10*time.Second, 10*time.Second
	})
	s := stage(t, r, slow(), "")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.Score(context.Background(), badTable(s, 1), make([]float64, 1), &policy.StageReport{})
	}()
	eventually(t, "the long call has an instance", func() bool { return host.Idle(s) < 2 })
	for range 10 {
		if _, _, err := score(s, 1); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-done:
		t.Error("the others waited for the long call")
	default:
	}
	<-done
}

func peersCompileOnce(t *testing.T) {
	r, reg := childRuntime(t, t.TempDir())
	var wg sync.WaitGroup
	s, err := loaded(t.Context(), r, "module:test", good())
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		wg.Go(func() {
			if _, _, err := score(s, 4); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := compiles(t, reg); n != 1 {
		t.Errorf("compiled %d times for 8 callers, want once", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// peersHeaders: a guest sees the id of the value's bytes, of any bytes, and of
// no credential.
func peersHeaders(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Headers = []string{"x-raw"} })
	g := Guest{Extra: `,"request_fields":["header.x-raw"]`, ScoreTypes: ColumnTypes, Score: Constant(Field(0))}
	s := stage(t, r, g.Bytes(), "")
	tab := table(s, 1)
	tab.SetHeader("x-raw", abi.ID("\xff\xfe\x00"))
	if got, _ := scoresOf(t, s, tab); got[0] != abi.ID("\xff\xfe\x00") || got[0] == 0 {
		t.Errorf("got %v", got[0])
	}
	for _, h := range []string{"authorization", "cookie"} {
		c := host.DefaultConfig()
		if c.Headers = []string{h}; c.Validate() == nil {
			t.Errorf("%s may be shown to guests", h)
		}
	}
}

func peersOneBatchedCall(t *testing.T) {
	rt, reg, _ := told(t)
	s := stage(t, rt, good(), "")
	if _, _, err := score(s, 500); err != nil {
		t.Fatal(err)
	}
	if n := values(t, reg)["routerd_plugin_calls_total{test}"]; n != 1 {
		t.Errorf("%v calls for 500 candidates, want 1", n)
	}
	set := s.Columns()
	if diff := cmp.Diff([]string{"load.active_requests"}, set.Names()); diff != "" {
		t.Errorf("columns that are filled (-want +got):\n%s", diff)
	}
}

func peersLimitsAlwaysOn(t *testing.T) {
	c := host.DefaultConfig()
	if c.CallDeadline != 10*time.Millisecond || c.FuelCap == 0 || c.MemoryPages == 0 || c.MemoryLimit == 0 {
		t.Errorf("got %+v, want every limit on by default", c)
	}
	for name, off := range map[string]func(*host.Config){
		"deadline": func(c *host.Config) { c.CallDeadline = 0 }, "fuel": func(c *host.Config) { c.FuelCap = 0 },
		"pages": func(c *host.Config) { c.MemoryPages = 0 }, "memory": func(c *host.Config) { c.MemoryLimit = 0 },
	} {
		c := host.DefaultConfig()
		if off(&c); c.Validate() == nil {
			t.Errorf("%s can be switched off", name)
		}
	}
}

// peersCrashedInstance: what a call changed before it trapped is gone.
func peersCrashedInstance(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Instances = 1 })
	g := Guest{
		Before: func(m *Module) { m.Global(0) }, ScoreTypes: ColumnTypes,
		Score: Cat(
			Get(0), LoadI64(abi.OffSeed), I64(666), Op(0x51), If(I32(1), SetGlobal(1), Op(Unreachable)),
			Constant(GetGlobal(1), Op(F64ConvertU)),
		),
	}
	s := stage(t, r, g.Bytes(), "")
	for range 5 {
		if _, err := s.Score(context.Background(), badTable(s, 1), make([]float64, 1), &policy.StageReport{}); err == nil {
			t.Fatal("no fault")
		}
		if got, _, err := score(s, 1); err != nil || got[0] != 0 {
			t.Errorf("after the trap: %v, %v, want a fresh instance", got, err)
		}
	}
}

// peersDrain: a revision that was replaced closes with its last call, not
// before and not by a timer.
func peersDrain(t *testing.T) {
	r := newRuntime(t)
	s, err := loaded(t.Context(), r, "module:test", good())
	if err != nil {
		t.Fatal(err)
	}
	rev := revisionOf(t, s)
	h, err := policy.NewHandle(rev)
	if err != nil {
		t.Fatal(err)
	}
	running := h.Active()
	native := spec("builtin:least-load")
	p, _, err := policy.Compile(context.Background(), native, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Publish(policy.NewRevision("test", 2, native, p, nil)); err != nil {
		t.Fatal(err)
	}
	rev.Retire()
	select {
	case <-rev.Closed():
		t.Fatal("closed under a running call")
	default:
	}
	running.Release()
	<-rev.Closed()
	testkit.Until(t, "nothing is held after the last call", func() bool { u := r.Usage(); return u.Instances == 0 && u.Modules == 0 })
}

func peersPinned(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "mod", lowest())
	info := b.put(t, "default", spec("module:mod"))
	b.activate(t, "default", info.Number)
	b.upload(t, "mod", highest()) // the name stands for other bytes now
	if row, _, _ := b.pick(t, fleet.PartitionKey{}); row != 0 {
		t.Errorf("row %d, want 0: the revision is pinned to what it was made from", row)
	}
	if diff := cmp.Diff([]string{host.Digest(lowest())}, info.Digests); diff != "" {
		t.Errorf("digests (-want +got):\n%s", diff)
	}
}

func peersLimitsTold(t *testing.T) {
	info, err := host.Inspect(Guest{Extra: `,"limits":{"max_rows":77}`}.Bytes())
	if err != nil || info.Manifest.Limits.MaxRows != 77 || info.Manifest.Limits.FuelBase != abi.DefaultFuelBase {
		t.Errorf("got %+v, %v", info, err)
	}
	want := host.DefaultConfig()
	got := newRuntime(t, func(c *host.Config) { *c = want }).Limits()
	if got.CallDeadline != want.CallDeadline || got.FuelCap != want.FuelCap || got.PoolWait != want.PoolWait {
		t.Errorf("got %+v, want what is in force", got)
	}
}
