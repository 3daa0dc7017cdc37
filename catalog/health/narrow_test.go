package health_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

func TestMaxEjectedBoundsWhoIsOut(t *testing.T) {
	for _, c := range []struct{ workers, percent, want int }{
		{1, 50, 0},
		{1, 100, 0},
		{2, 50, 1},
		{2, 49, 0},
		{2, 100, 1},
		{3, 50, 1},
		{3, 67, 2},
		{3, 100, 2},
		{10, 50, 5},
		{10, 100, 9},
		{100, 50, 50},
		{100, 1, 1},
		{100, 0, 0},
		{0, 50, 0},
	} {
		if got := health.Allowed(c.workers, c.percent); got != c.want {
			t.Errorf("of %d at %d %%: %d may be out, want %d", c.workers, c.percent, got, c.want)
		}
	}
	for _, c := range []struct{ workers, out int }{{1, 0}, {2, 1}, {3, 1}, {10, 5}, {100, 50}} {
		bubble(t, health.DefaultConfig(), func(t *testing.T, w *world) {
			all := names(c.workers)
			w.join(t, all...)
			for _, name := range all {
				w.set(name, "503")
			}
			w.wait(30 * time.Second)
			out, kept := 0, 0
			for _, v := range w.Workers() {
				switch {
				case v.Lifecycle == core.Ejected && cmp.Equal(v.Reasons, []string{"health_status: 503 from /health"}):
					out++
				case v.Lifecycle == core.Ready && cmp.Equal(v.Reasons, []string{"health: health_status: 503 from /health (kept: max_ejected)"}):
					kept++
				}
			}
			if out != c.out || out+kept != c.workers {
				t.Errorf("of %d: %d out and %d kept, want %d out", c.workers, out, kept, c.out)
			}
			for _, name := range all {
				w.set(name, "success")
			}
			w.wait(30 * time.Second)
			for _, v := range w.Workers() {
				if v.Lifecycle != core.Ready || len(v.Reasons) > 0 {
					t.Errorf("%s is %s (%v) in the end, want ready", v.Name, v.Lifecycle, v.Reasons)
				}
			}
		})
	}
}

// returningWorld has w1 just back, and w2.
func returningWorld(t *testing.T, f func(w *world, both []fleet.Worker)) {
	t.Helper()
	bubble(t, health.DefaultConfig(), func(t *testing.T, w *world) {
		w.join(t, "w1", "w2")
		w.monitor.Breaker(id("w1"), true, "")
		w.wait(100 * time.Millisecond)
		w.monitor.Breaker(id("w1"), false, "")
		synctest.Wait()
		f(w, []fleet.Worker{{ID: id("w1")}, {ID: id("w1"), Rank: 1}, {ID: id("w2")}})
	})
}

// spared counts the requests of 1,000 that w1 is spared.
func spared(m *health.Monitor, workers []fleet.Worker, req core.Request) (n int) {
	for seed := range uint64(1000) {
		req.Seed = &seed
		if !kept(m, &req, workers)[0] {
			n++
		}
	}
	return n
}

func TestSlowReturnLeavesAlone(t *testing.T) {
	one := uint64(1)
	returningWorld(t, func(w *world, both []fleet.Worker) {
		if n := spared(w.monitor, both, core.Request{}); n < 850 || n > 950 {
			t.Fatalf("an ordinary request: spared %d of 1,000, want about 900", n)
		}
		for name, req := range map[string]core.Request{
			"a pin":              {Pin: &core.Pin{Name: "w1"}},
			"an affinity target": {Target: &core.Pin{Name: "w1"}},
			"a session":          {Session: "s"},
			"a session context":  {SessionContext: &core.SessionContext{ID: "s"}},
		} {
			if n := spared(w.monitor, both, req); n != 0 {
				t.Errorf("%s: spared %d of 1,000, want none", name, n)
			}
		}
		if n := spared(w.monitor, both, core.Request{SessionContext: &core.SessionContext{ID: "s", Advice: true}}); n < 850 {
			t.Errorf("a session that binds nothing: spared %d of 1,000, want about 900", n)
		}
		if n := spared(w.monitor, both[:2], core.Request{}); n != 0 {
			t.Errorf("with nobody else: spared %d of 1,000, want none", n)
		}
		keep := []bool{true, true, false} // somebody before took the other out
		w.monitor.Narrow(&core.Request{Seed: &one}, both, keep)
		if !keep[0] || !keep[1] || keep[2] {
			t.Errorf("keep is %v, want it left alone", keep)
		}
		first := kept(w.monitor, &core.Request{Seed: &one}, both)
		if again := kept(w.monitor, &core.Request{Seed: &one}, both); !cmp.Equal(first, again) || first[0] != first[1] {
			t.Errorf("one seed draws %v and %v; want one lot for all ranks, always", first, again)
		}
	})
}

func TestSlowReturnGrowsAndEnds(t *testing.T) {
	returningWorld(t, func(w *world, both []fleet.Worker) {
		last := 1001
		for range 5 {
			n := spared(w.monitor, both, core.Request{})
			if n >= last {
				t.Errorf("spared %d of 1,000 after %d, want fewer", n, last)
			}
			last = n
			w.wait(2 * time.Second)
		}
		if spared(w.monitor, both, core.Request{}) != 0 || w.monitor.Returning() {
			t.Error("the return goes on after ten seconds")
		}
	})
}

func TestNarrowAllocatesNothing(t *testing.T) {
	returningWorld(t, func(w *world, both []fleet.Worker) {
		seed := uint64(7)
		req, keep := &core.Request{Seed: &seed}, make([]bool, len(both))
		if n := testing.AllocsPerRun(100, func() {
			w.monitor.Narrow(req, both, keep)
			w.monitor.Passive(id("w2"), fleet.Success)
		}); n != 0 {
			t.Errorf("%v allocations, want none", n)
		}
	})
}

// Successes cost a look-up only, but for workers that have just failed.
func TestASuccessIsNewsOnlyAfterAFailure(t *testing.T) {
	bubble(t, health.DefaultConfig(), func(t *testing.T, w *world) {
		w.join(t, "w1")
		for _, c := range []struct {
			outcome fleet.Outcome
			want    bool
		}{{fleet.Success, false}, {fleet.Timeout, true}, {fleet.Success, false}} {
			if w.monitor.Passive(id("w1"), c.outcome); w.monitor.Suspect(id("w1")) != c.want {
				t.Errorf("after outcome %d suspect is %v, want %v", c.outcome, !c.want, c.want)
			}
		}
	})
}

func TestMetrics(t *testing.T) {
	bubble(t, health.DefaultConfig(), func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		if err := w.monitor.Register(reg); err != nil {
			t.Fatal(err)
		}
		w.join(t, names(4)...)
		w.set("w9", "refused")
		w.put(record(t, "w9"))
		w.wait(100 * time.Millisecond)
		for i, name := range []string{"w0", "w1", "w2", "w3"} {
			w.monitor.Breaker(id(name), i < 3, "")
		}
		w.monitor.Breaker(id("w1"), false, "")
		w.wait(20 * time.Millisecond)
		var fine float64
		for _, name := range names(4) {
			fine += float64(len(w.times(name)))
		}
		want := map[string]float64{
			"ejected_workers": 2, "kept_workers": 0, "returning_workers": 1, "starting_workers": 1,
			"ejections_total breaker_open": 3, "ejections_total health_broken": 0, "ejections_total health_refused": 0, "ejections_total health_status": 0,
			"ejections_total health_timeout": 0, "ejections_total health_unreachable": 0, "ejections_total outlier": 0,
			"probes_total success": fine, "probes_total refused": float64(len(w.times("w9"))), "probes_total timeout": 0, "probes_total unreachable": 0,
			"probes_total broken": 0, "probes_total status": 0,
		}
		if diff := cmp.Diff(want, gathered(t, reg)); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}

// gathered are the values by name and label value.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "routerd_health_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}
