package app_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/testkit"
)

// spent is the CPU time that this process has used.
func spent(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// alone runs a test again in a process of its own, where the goroutines and the garbage
// of other tests take no CPU time. It returns true there, and false in the process that
// has waited for the other one.
func alone(t *testing.T) bool {
	t.Helper()
	const mark = "ROUTERD_TEST_ALONE"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	out, err := cmd.CombinedOutput()
	t.Logf("in a process of its own:\n%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}

// talkative are engines that tell all.
type talkative struct{ mute }

func (talkative) Ask(context.Context, fleet.Record) (catalog.Facts, error) {
	return catalog.Facts{Engine: "vllm", Version: "1", Models: []string{"m"}, BlockSize: 16, TotalKVBlocks: 1000, DPSize: 1}, nil
}

func TestFiveThousandWorkersOfOneList(t *testing.T) {
	if !alone(t) {
		return
	}
	const n = 5000
	for name, c := range map[string]struct {
		engines catalog.Engines
		change  func(*fleet.Record)
		upserts int64
	}{
		"that say all themselves":       {mute{}, nil, n},
		"whose engines tell everything": {talkative{}, func(r *fleet.Record) { r.Model, r.BlockSize = "", 0 }, n},
		"whose engines tell the rest":   {talkative{}, func(r *fleet.Record) { r.NoHealthCheck = false }, 2 * n},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleetOf(t, false, func(p *app.FleetParts) { p.Engines = c.engines })
			list := make([]fleet.Record, n)
			for i := range list {
				list[i] = wish(t, fleet.WorkerID(i+1), c.change)
			}
			runtime.GC() // of what was before
			before := spent(t)
			applied(t, f, list...)
			t.Logf("%d workers: %s of CPU, %d upserts in %d changes", n, spent(t)-before, f.Upserts.Load(), f.Commits.Load())
			if got := ready(f); got != n {
				t.Errorf("%d are ready, want %d", got, n)
			}
			testkit.Until(t, "all is told", func() bool { return f.Upserts.Load() >= c.upserts })
			cpu := spent(t) - before
			t.Logf("with all that the engines tell: %s of CPU, %d upserts in %d changes", cpu, f.Upserts.Load(), f.Commits.Load())
			if cpu > reconcileWithin {
				t.Errorf("%d workers took %s of CPU, want %s at most", n, cpu, reconcileWithin)
			}
			if got := f.Commits.Load(); got > n/10 {
				t.Errorf("the core was told in %d changes; workers that come together go together", got)
			}
			upserts := f.Upserts.Load()
			before = spent(t)
			changed := list[n/2]
			changed.Taints = []string{"slow"}
			list[n/2] = changed
			again, err := f.Reconciler.Plan("file", list)
			if err != nil || !slices.Equal(again, []fleet.WorkerID{changed.ID}) {
				t.Errorf("one change has %d workers tried, %v", len(again), err)
			}
			f.Reconciler.Bring(t.Context(), again...)
			t.Logf("one change: %s of CPU", spent(t)-before)
			if got := f.Upserts.Load() - upserts; got != 1 || f.Unlistens.Load() != 0 {
				t.Errorf("one change touched %d workers", got)
			}
			commits := f.Commits.Load()
			before = spent(t)
			applied(t, f)
			cpu = spent(t) - before
			t.Logf("none is left: %s of CPU, %d changes", cpu, f.Commits.Load()-commits)
			if got := f.Commits.Load() - commits; cpu > reconcileWithin || got != 1 || len(f.Reconciler.Workers()) != 0 {
				t.Errorf("that all leave took %s of CPU and %d changes, want %s at most, and one", cpu, got, reconcileWithin)
			}
		})
	}
}

func TestAPolicyThatTakesLongDelaysNoOtherPartition(t *testing.T) {
	gate, began := make(chan struct{}), make(chan struct{})
	var once sync.Once
	policies := kvAware(t)
	policies.gate = func(key fleet.PartitionKey) {
		if key.Model == "slow" {
			once.Do(func() { close(began) })
			<-gate
		}
	}
	f := fleetOf(t, false, func(p *app.FleetParts) { p.Policies = policies })
	src, err := api.Open(filepath.Join(t.TempDir(), "workers.json"), f.Reconciler)
	if err != nil {
		t.Fatal(err)
	}
	slow := func(r *fleet.Record) { r.Model = "slow" }
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if _, _, err := src.Put(context.Background(), wish(t, 100, slow)); err != nil {
			t.Error(err)
		}
	})
	waiting.Go(func() { // a list with workers of both
		if err := f.Reconciler.Apply(context.Background(), "dns", []fleet.Record{wish(t, 200, slow), wish(t, 201, nil)}); err != nil {
			t.Error(err)
		}
	})
	<-began
	testkit.Until(t, "the other worker of the list serves", func() bool { return ready(f) == 1 })
	v, _, err := src.Put(t.Context(), wish(t, 101, nil)) // the same source, another partition
	if err != nil || v.Lifecycle != core.Ready {
		t.Errorf("a worker of another partition is %s, %v", v.Lifecycle, err)
	}
	applied(t, f, wish(t, 1, nil), wish(t, 2, nil))
	for i := range 20 {
		if _, err := book(t, f, fmt.Sprint(i), nil); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.Reconciler.Drain("w2", time.Minute); err != nil {
		t.Error(err)
	}
	applied(t, f, wish(t, 1, nil))
	if got := ready(f); got != 3 {
		t.Errorf("%d are ready, want 1, 101 and 201", got)
	}
	close(gate)
	waiting.Wait()
	testkit.Until(t, "all serve", func() bool { return ready(f) == 5 })
}
