package host_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/plugins/abi"
)

// bench is a data folder with everything on it open.
type bench struct {
	dir     string
	rt      *host.Runtime
	modules *store.Store
	source  *host.PolicySource
	logs    *testkit.Log
}

func openBench(t testing.TB, dir string, change ...func(*host.PolicyConfig)) *bench {
	t.Helper()
	b := &bench{dir: dir, rt: newRuntime(t), logs: &testkit.Log{}}
	var err error
	if b.modules, err = store.Open(filepath.Join(dir, "modules")); err != nil {
		t.Fatal(err)
	}
	cfg := host.PolicyConfig{Dir: filepath.Join(dir, "policies")}
	for _, c := range change {
		c(&cfg)
	}
	b.source, err = host.OpenPolicySource(context.Background(), b.rt, b.modules, cfg, slog.New(slog.NewTextHandler(b.logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.source.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) upload(t testing.TB, name string, wasm []byte) {
	t.Helper()
	if _, _, err := b.modules.Put(name, strings.NewReader(string(wasm)), ""); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) put(t testing.TB, name string, spec policy.Spec) host.RevisionInfo {
	t.Helper()
	info, _, err := b.source.Put(context.Background(), name, spec, "test")
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func (b *bench) activate(t testing.TB, name string, number int) {
	t.Helper()
	if _, _, err := b.source.Activate(context.Background(), name, number, "test"); err != nil {
		t.Fatal(err)
	}
}

// pick decides once with what key resolves to: the row and the revision.
func (b *bench) pick(t testing.TB, key fleet.PartitionKey) (row, revision int, by policy.By) {
	t.Helper()
	h, err := b.source.Resolve(key, "")
	if err != nil {
		t.Fatal(err)
	}
	rev := h.Active()
	defer rev.Release()
	tab := &policy.Table{}
	tab.Reset(4, rev.Columns())
	for i, col := 0, tab.Fill(abi.ColLoadActiveRequests); i < len(col); i++ {
		col[i] = float64(i)
	}
	var d policy.Decision
	if err := rev.Decide(context.Background(), tab, &d); err != nil {
		t.Fatal(err)
	}
	return d.Row, rev.Number(), d.By
}

func spec(uses ...string) policy.Spec {
	var s policy.Spec
	for _, u := range uses {
		s.Scorers = append(s.Scorers, policy.ScorerSpec{StageSpec: policy.StageSpec{Use: u}})
	}
	return s
}

// lowest and highest prefer the first and the last row of a table.
func lowest() []byte { return Guest{Name: "lowest"}.Bytes() }

func highest() []byte {
	return Guest{Name: "highest", Score: Column(0), ScoreTypes: ColumnTypes}.Bytes()
}

func TestDefaultPolicyAlwaysExists(t *testing.T) {
	b := openBench(t, t.TempDir())
	got, err := b.source.Show("default")
	if err != nil {
		t.Fatal(err)
	}
	if got.Active != 1 || len(got.Revisions) != 1 || got.Revisions[0].Spec.Scorers[0].Use != "builtin:kv-aware" || got.Revisions[0].State != policy.Active {
		t.Errorf("got %+v, want revision 1 of builtin:kv-aware, active", got)
	}
}

func TestO4_RollbackAndBack(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "low", lowest())
	b.upload(t, "high", highest())
	v1, v2 := b.put(t, "p1", spec("module:low")), b.put(t, "p1", spec("module:high"))
	if _, _, err := b.source.Rollback(context.Background(), "p1", 0, "test"); !errors.Is(err, host.ErrNoHistory) {
		t.Errorf("rollback without history: got %v", err)
	}
	b.activate(t, "p1", v1.Number)
	if _, _, err := b.source.Rollback(context.Background(), "p1", 0, "test"); !errors.Is(err, host.ErrNoHistory) {
		t.Errorf("rollback of the first activation: got %v", err)
	}
	b.activate(t, "p1", v2.Number)
	for _, want := range [][2]int{{1, 2}, {2, 1}} {
		active, previous, err := b.source.Rollback(context.Background(), "p1", 0, "test")
		if err != nil || [2]int{active, previous} != want {
			t.Errorf("rollback: got active %d, previous %d (%v), want %v", active, previous, err, want)
		}
	}
	if _, _, err := b.source.Rollback(context.Background(), "p1", 9, "test"); !errors.Is(err, host.ErrNoRevision) {
		t.Errorf("rollback to what is not kept: got %v", err)
	}
	if _, _, err := b.source.Activate(context.Background(), "nobody", 1, "test"); !errors.Is(err, host.ErrNoPolicy) {
		t.Errorf("activate of no policy: got %v", err)
	}
}

func TestSamePutGivesTheSameRevision(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "low", lowest())
	first := b.put(t, "p1", spec("module:low"))
	again, created, err := b.source.Put(context.Background(), "p1", spec("module:low"), "test")
	if err != nil || created || again.Number != first.Number {
		t.Errorf("got %+v, created %v, %v, want revision %d again", again, created, err, first.Number)
	}
	// The name moved on: the same words mean another revision.
	b.upload(t, "low", highest())
	moved := b.put(t, "p1", spec("module:low"))
	if moved.Number != 2 || moved.Digests[0] == first.Digests[0] {
		t.Errorf("got %+v, want revision 2 with other bytes", moved)
	}
}

func TestFailedPutLeavesEverythingAsItWas(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "low", lowest())
	b.upload(t, "trap", Guest{Score: Op(Unreachable)}.Bytes())
	b.put(t, "p1", spec("module:low"))
	b.activate(t, "p1", 1)
	before := b.source.List()
	for name, s := range map[string]policy.Spec{
		"module that traps": spec("module:low", "module:trap"), "no such module": spec("module:gone"), "no scorers": {},
		"a digest that is none": spec("module:low@sha256:12"),
	} {
		_, created, err := b.source.Put(context.Background(), "p1", s, "test")
		if err == nil || created {
			t.Errorf("%s: accepted", name)
		}
		var le *host.LoadError
		if name == "module that traps" && (!errors.As(err, &le) || le.Step != host.StepSelfTest) {
			t.Errorf("%s: got %v, want the step", name, err)
		}
	}
	if diff := cmp.Diff(before, b.source.List()); diff != "" {
		t.Errorf("policies changed (-before +after):\n%s", diff)
	}
	if u := b.rt.Usage(); u.Pools != 1 || u.Modules != 1 {
		t.Errorf("usage: got %+v, want one module in one pool", u)
	}
	if err := b.modules.Delete("trap"); err != nil {
		t.Errorf("the refused module is still pinned: %v", err)
	}
	if err := b.modules.Delete("low"); !errors.Is(err, store.ErrInUse) {
		t.Errorf("delete of a module in use: got %v", err)
	}
	if _, _, err := b.source.Put(context.Background(), "../p1", spec("module:low"), "test"); err == nil {
		t.Error("a name that is none was accepted")
	}
}

func TestLastTenRevisionsAreKept(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "low", lowest())
	b.put(t, "p1", spec("module:low"))
	b.activate(t, "p1", 1)
	for i := range 14 {
		s := spec("builtin:least-load")
		w := float64(i + 1)
		s.Scorers[0].Weight = &w
		b.put(t, "p1", s)
	}
	p, err := b.source.Show("p1")
	if err != nil {
		t.Fatal(err)
	}
	var numbers []int
	for _, r := range p.Revisions {
		numbers = append(numbers, r.Number)
	}
	if diff := cmp.Diff([]int{1, 7, 8, 9, 10, 11, 12, 13, 14, 15}, numbers); diff != "" {
		t.Errorf("kept revisions (-want +got):\n%s", diff)
	}
}

func TestPoliciesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	var before []host.PolicyInfo
	t.Run("first life", func(t *testing.T) {
		b := openBench(t, dir)
		b.upload(t, "low", lowest())
		b.upload(t, "high", highest())
		b.put(t, "default", spec("module:low"))
		b.put(t, "default", spec("module:high"))
		b.activate(t, "default", 2)
		b.activate(t, "default", 3)
		before = b.source.List()
		// What a crash leaves half-written.
		if err := os.WriteFile(filepath.Join(dir, "policies", ".writing-1"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	b := openBench(t, dir)
	if diff := cmp.Diff(before, b.source.List()); diff != "" {
		t.Errorf("policies (-before +after):\n%s", diff)
	}
	if row, revision, by := b.pick(t, fleet.PartitionKey{}); row != 3 || revision != 3 || by != policy.ByPolicy {
		t.Errorf("got row %d by revision %d, %s, want row 3 by 3, policy", row, revision, by)
	}
	if _, _, err := b.source.Rollback(context.Background(), "default", 0, "test"); err != nil {
		t.Fatal(err)
	}
	if row, revision, _ := b.pick(t, fleet.PartitionKey{}); row != 0 || revision != 2 {
		t.Errorf("after rollback: got row %d by revision %d, want row 0 by 2", row, revision)
	}
}

func TestModuleThatNoLongerLoadsRunsTheFallbackAndSaysSo(t *testing.T) {
	dir := t.TempDir()
	var digest string
	t.Run("first life", func(t *testing.T) {
		b := openBench(t, dir)
		b.upload(t, "high", highest())
		s := spec("module:high")
		s.Fallback = "builtin:least-load"
		digest = b.put(t, "default", s).Digests[0]
		b.activate(t, "default", 2)
	})
	blob := filepath.Join(dir, "modules", "blobs", strings.TrimPrefix(digest, "sha256:"))
	if err := os.WriteFile(blob, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := openBench(t, dir)
	p, err := b.source.Show("default")
	if err != nil || p.Active != 2 || !strings.Contains(p.Problem, "E_DIGEST") {
		t.Errorf("got %+v (%v), want revision 2 with a problem", p, err)
	}
	if row, revision, _ := b.pick(t, fleet.PartitionKey{}); row != 0 || revision != 2 {
		t.Errorf("got row %d by revision %d, want least-load's row 0 under number 2", row, revision)
	}
	if err := os.WriteFile(blob, highest(), 0o600); err != nil {
		t.Fatal(err)
	}
	b.activate(t, "default", 2)
	if p, err := b.source.Show("default"); err != nil || p.Problem != "" {
		t.Errorf("after the bytes came back: got problem %q (%v)", p.Problem, err)
	}
	if row, _, _ := b.pick(t, fleet.PartitionKey{}); row != 3 {
		t.Errorf("got row %d, want the module's row 3", row)
	}
}

func TestRulesModelsAndDefault(t *testing.T) {
	b := openBench(t, t.TempDir(), func(c *host.PolicyConfig) {
		c.Rules = []host.Rule{{Model: "a", Group: "g", Policy: "p1"}, {Class: "batch", Policy: "p2"}}
		c.Models = map[string]string{"a": "p2", "b": "p2"}
		c.Seeds = map[string]policy.Spec{"p1": spec("builtin:least-load"), "p2": spec("builtin:round-robin")}
	})
	for _, tc := range []struct {
		model, group, class, want string
	}{
		{"a", "g", "", "p1"}, {"a", "", "", "p2"}, {"b", "x", "", "p2"}, {"c", "", "", "default"}, {"c", "", "batch", "p2"}, {"", "", "", "default"},
	} {
		h, err := b.source.Resolve(fleet.PartitionKey{Model: tc.model, Group: tc.group}, tc.class)
		if err != nil {
			t.Fatal(err)
		}
		rev := h.Active()
		if rev.Name() != tc.want {
			t.Errorf("%+v: got policy %q", tc, rev.Name())
		}
		rev.Release()
	}
}

func TestAConfigurationThatNamesNoPolicyIsRefused(t *testing.T) {
	for field, change := range map[string]func(*host.PolicyConfig){
		"routing.default":         func(c *host.PolicyConfig) { c.Default = "gone" },
		"routing.rules[0].policy": func(c *host.PolicyConfig) { c.Rules = []host.Rule{{Model: "m", Policy: "gone"}} },
		"models.m.policy":         func(c *host.PolicyConfig) { c.Models = map[string]string{"m": "gone"} },
	} {
		modules, err := store.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		pc := host.PolicyConfig{Dir: t.TempDir()}
		change(&pc)
		_, err = host.OpenPolicySource(t.Context(), newRuntime(t), modules, pc, slog.New(slog.DiscardHandler))
		var fe *fleet.FieldError
		if !errors.As(err, &fe) || fe.Field != field || fe.Value != "gone" || !strings.Contains(fe.Allowed, "default") {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestSeedsAndDrift(t *testing.T) {
	dir := t.TempDir()
	life := func(seed policy.Spec, do func(b *bench)) (p host.PolicyInfo) {
		t.Helper()
		t.Run("life", func(t *testing.T) {
			b := openBench(t, dir, func(c *host.PolicyConfig) { c.Seeds = map[string]policy.Spec{"p1": seed} })
			if do != nil {
				do(b)
			}
			var err error
			if p, err = b.source.Show("p1"); err != nil {
				t.Fatal(err)
			}
		})
		return p
	}
	a, c := spec("builtin:least-load"), spec("builtin:round-robin")
	if p := life(a, nil); p.Active != 1 || p.ActivatedBy != "config" || p.Drifted {
		t.Errorf("new name: got %+v", p)
	}
	if p := life(a, nil); p.Active != 1 || len(p.Revisions) != 1 {
		t.Errorf("same seed again: got %+v", p)
	}
	if p := life(c, nil); p.Active != 2 {
		t.Errorf("changed seed: got %+v", p)
	}
	p := life(c, func(b *bench) {
		b.put(t, "p1", spec("builtin:kv-aware"))
		b.activate(t, "p1", 3)
	})
	if p.Active != 3 || !p.Drifted {
		t.Errorf("set by the API: got %+v", p)
	}
	if p := life(a, nil); p.Active != 3 || !p.Drifted {
		t.Errorf("changed seed after the API set another: got %+v", p)
	}
}

func TestSeedThatCannotBeMadeStopsTheStart(t *testing.T) {
	dir := t.TempDir()
	modules, err := store.Open(filepath.Join(dir, "modules"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := host.PolicyConfig{Dir: filepath.Join(dir, "policies"), Seeds: map[string]policy.Spec{"p1": spec("module:gone")}}
	_, err = host.OpenPolicySource(context.Background(), newRuntime(t), modules, cfg, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "policies.p1") || !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v, want an error that names policies.p1", err)
	}
}

// leastHeap is the least of what three collections leave on the heap: what
// callers allocate meanwhile is no growth.
func leastHeap() int64 {
	least := int64(math.MaxInt64)
	for range 3 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		least = min(least, int64(m.HeapAlloc))
	}
	return least
}

func TestSwapUnderLoad(t *testing.T) {
	const callers = 8
	b := openBench(t, t.TempDir())
	b.upload(t, "low", lowest())
	b.upload(t, "high", highest())
	b.put(t, "default", spec("module:low"))
	b.put(t, "default", spec("module:high"))
	b.activate(t, "default", 2)
	handle, err := b.source.Resolve(fleet.PartitionKey{}, "")
	if err != nil {
		t.Fatal(err)
	}
	// Numbers of the last Activate that began and of the last that returned.
	// Swap i activates revision 2 when i is even, 3 when it is odd.
	var began, returned atomic.Int64
	var calls, faults, stale, wrong atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	// Callers that wait too long for an instance trip revisions; the source
	// keeps those until it has written that down.
	running, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.source.Run(running) }()
	for range callers {
		wg.Go(func() {
			tab, d := &policy.Table{}, policy.Decision{}
			for {
				select {
				case <-stop:
					return
				default:
				}
				settled := returned.Load()
				rev := handle.Active()
				tab.Reset(4, rev.Columns())
				for i, col := 0, tab.Fill(abi.ColLoadActiveRequests); i < len(col); i++ {
					col[i] = float64(i)
				}
				if err := rev.Decide(context.Background(), tab, &d); err != nil || d.Fault != nil && d.Fault.Reason != "pool_wait" {
					faults.Add(1)
				}
				// With no swap under way since before the load, only the last one's
				// revision may have decided.
				if began.Load() == settled && int64(rev.Number()) != 2+settled%2 {
					stale.Add(1)
				}
				if d.By == policy.ByPolicy && d.Row != 3*(rev.Number()-2) {
					wrong.Add(1)
				}
				rev.Release()
				calls.Add(1)
			}
		})
	}
	var memory []int64 // heap after a collection plus guest memory
	for i := int64(1); i <= swaps; i++ {
		began.Store(i)
		b.activate(t, "default", int(2+i%2))
		returned.Store(i)
		if i%(swaps/10) == 0 {
			memory = append(memory, leastHeap()+b.rt.Usage().Memory)
		}
	}
	close(stop)
	wg.Wait()
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Logf("%d calls during %d swaps; memory %v", calls.Load(), swaps, memory)
	if faults.Load() != 0 || stale.Load() != 0 || wrong.Load() != 0 {
		t.Errorf("%d faults, %d decisions by an old revision, %d wrong rows, want 0", faults.Load(), stale.Load(), wrong.Load())
	}
	if first, last := memory[1], memory[len(memory)-1]; last > first+8<<20 {
		t.Errorf("memory rose from %d to %d bytes", first, last)
	}
	if u := b.rt.Usage(); u.Modules > 2 || u.Pools > 2 || u.Memory > 64<<20 {
		t.Errorf("usage after the swaps: got %+v, want the active revision's and at most one more", u)
	}
}
