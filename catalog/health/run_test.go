package health_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// bubble runs f in a bubble with a monitor that runs.
func bubble(t *testing.T, cfg health.Config, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, stop := start(t, cfg)
		defer stop()
		f(t, w)
	})
}

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("w%d", i))
	}
	return out
}

func TestProbesAreSpreadAndJitter(t *testing.T) {
	bubble(t, health.DefaultConfig(), func(t *testing.T, w *world) {
		all := names(200)
		w.join(t, all...)
		w.wait(time.Minute)
		slots := map[time.Duration]int{}
		for _, name := range all {
			times := w.times(name)
			if len(times) < 10 || len(times) > 17 {
				t.Errorf("%s was asked %d times in a minute, want about 13", name, len(times))
			}
			for i := 2; i < len(times); i++ {
				if gap := times[i].Sub(times[i-1]); gap < 4*time.Second || gap > 6*time.Second {
					t.Errorf("%s was asked again after %v, want 4s to 6s", name, gap)
				}
			}
			slots[times[2].Sub(times[0]).Truncate(500*time.Millisecond)]++
		}
		for at, n := range slots {
			if n > len(all)/4 {
				t.Errorf("%d of %d workers were asked in the half second at %v, want them spread", n, len(all), at)
			}
		}
	})
}

// 1,000 workers fall silent; those that are well are asked as often as before.
func TestSilentWorkersDelayNoOther(t *testing.T) {
	bubble(t, health.DefaultConfig(), func(t *testing.T, w *world) {
		all := names(1100)
		w.join(t, all...)
		for _, name := range all[100:] {
			w.set(name, "timeout")
		}
		w.wait(30 * time.Second)
		for _, name := range all[:100] {
			times := w.times(name)
			for i := 2; i < len(times); i++ {
				if gap := times[i].Sub(times[i-1]); gap > 6500*time.Millisecond {
					t.Errorf("%s was asked again only after %v, want 6.5s at most", name, gap)
				}
			}
		}
	})
}

// Engines that answer within the time that a probe counts for are never asked more
// than 64 at once.
func TestAtMost64ProbesAtOnce(t *testing.T) {
	bubble(t, health.DefaultConfig(), func(t *testing.T, w *world) {
		var now, most atomic.Int64
		w.monitor = health.NewAsking(w.cfg, w.roster, func(ctx context.Context, _ string) (string, int) {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
			return "success", 0
		}, quiet())
		done := make(chan core.Lifecycle)
		for _, name := range names(500) {
			go func() {
				l, _ := w.monitor.Standing(t.Context(), record(t, name))
				done <- l
			}()
		}
		for range 500 {
			if l := <-done; l != core.Ready {
				t.Errorf("standing %s, want ready", l)
			}
		}
		if most.Load() != 64 {
			t.Errorf("%d probes at once, want 64", most.Load())
		}
	})
}

func TestStandingAsksANewWorkerOnceAndAtOnce(t *testing.T) {
	bubble(t, health.DefaultConfig(), func(t *testing.T, w *world) {
		w.set("w1", "timeout")
		w.put(record(t, "w1"))
		began := time.Now()
		done := make(chan core.Lifecycle)
		for range 5 {
			go func() {
				l, _ := w.monitor.Standing(t.Context(), record(t, "w1"))
				done <- l
			}()
		}
		for range 5 {
			if l := <-done; l != core.Incomplete {
				t.Errorf("standing %s, want incomplete", l)
			}
		}
		if took, asked := time.Since(began), len(w.times("w1")); took != 2*time.Second || asked != 1 {
			t.Errorf("asked %d times in %v, want once and for 2s", asked, took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r, a := newRoster(), newAnswers()
		m := health.NewAsking(health.DefaultConfig(), r, a.ask, quiet())
		a.set("w1", "timeout")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if l, reasons := m.Standing(ctx, record(t, "w1")); l != core.Incomplete || len(reasons) != 1 || reasons[0] != "starting: not asked yet" {
			t.Errorf("cut short: %s %q", l, reasons)
		}
		a.set("w1", "success")
		if l, reasons := m.Standing(t.Context(), record(t, "w1")); l != core.Ready || reasons != nil {
			t.Errorf("asked again: %s %q, want ready", l, reasons)
		}
	})
}

func TestAWorkerThatOthersSeeToIsNeitherProbedNorEjected(t *testing.T) {
	bubble(t, health.DefaultConfig(), func(t *testing.T, w *world) {
		rec := record(t, "w1")
		rec.NoHealthCheck = true
		w.put(rec)
		w.wait(time.Minute)
		for range 10 {
			w.monitor.Passive(rec.ID, fleet.ConnectFailed)
		}
		w.monitor.Breaker(rec.ID, true, "")
		w.wait(time.Minute)
		if v, _ := w.find(rec.ID); v.Lifecycle != core.Ready || len(w.times("w1")) != 0 {
			t.Errorf("%s %v after %d probes, want ready after none", v.Lifecycle, v.Reasons, len(w.times("w1")))
		}
	})
}

// Nothing is left of workers that went, also of one whose standing was asked too
// late.
func TestRemovedWorkersAreForgotten(t *testing.T) {
	bubble(t, health.DefaultConfig(), func(t *testing.T, w *world) {
		all := names(20)
		w.join(t, all...)
		w.monitor.Breaker(id("w3"), true, "")
		w.monitor.Breaker(id("w3"), false, "")
		w.monitor.Passive(id("w4"), fleet.Timeout)
		for _, name := range all {
			w.remove(id(name))
		}
		w.wait(60 * time.Millisecond)
		w.monitor.Standing(t.Context(), record(t, "w5"))
		w.wait(100 * time.Millisecond)
		before := len(w.times("w5"))
		w.wait(time.Minute)
		workers, groups, planned := w.monitor.Watched()
		if workers+groups+planned > 0 || w.monitor.Returning() || w.monitor.Suspect(id("w4")) || len(w.times("w5")) != before {
			t.Errorf("left: %d workers, %d groups, %d probes planned, returning %v; w5 was asked %d times more",
				workers, groups, planned, w.monitor.Returning(), len(w.times("w5"))-before)
		}
	})
}

// listed is a roster that does something after it has made a list and before it
// hands it over.
type listed struct {
	*roster
	meanwhile func()
}

func (l *listed) Workers() []catalog.View {
	views := l.roster.Workers()
	if f := l.meanwhile; f != nil {
		l.meanwhile = nil
		f()
	}
	return views
}

// What Standing learns while a list is made is newer than the list.
func TestAListDoesNotUndoWhatCameAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a := &listed{roster: newRoster()}, newAnswers()
		m := health.NewAsking(health.DefaultConfig(), l, a.ask, quiet())
		l.put(record(t, "w1"))
		m.Standing(t.Context(), record(t, "w1"))
		moved := record(t, "w1")
		moved.URL = "http://elsewhere:80"
		l.meanwhile = func() {
			m.Standing(t.Context(), moved)
			m.Standing(t.Context(), record(t, "w2"))
		}
		m.Refresh()
		if workers, _, _ := m.Watched(); workers != 2 {
			t.Fatalf("%d workers are watched, want both", workers)
		}
		m.Standing(t.Context(), moved)
		m.Standing(t.Context(), record(t, "w2"))
		if n := [3]int{len(a.times("w1")), len(a.times("elsewhere")), len(a.times("w2"))}; n != [3]int{1, 1, 1} {
			t.Errorf("w1 was asked %d times at its old place and %d at its new one, w2 %d times; want once each", n[0], n[1], n[2])
		}
	})
}

// A probe under way ends when its worker leaves, and no other begins.
func TestO6_NoProbeOfARemovedWorker(t *testing.T) {
	var asked atomic.Int64
	cut := make(chan struct{}, 100)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 {
			<-r.Context().Done()
			cut <- struct{}{}
		}
	}))
	defer slow.Close()
	cfg := health.DefaultConfig()
	cfg.Interval, cfg.Timeout = 100*time.Millisecond, time.Minute
	r := newRoster()
	r.monitor = health.New(cfg, r, quiet())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.monitor.Run(ctx) }()
	rec := fleet.Record{ID: 1, Name: "w1", URL: slow.URL, Model: "m", Group: "g"}
	r.put(rec)
	r.settle(ctx)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for asked.Load() < 2 {
		<-tick.C
	}
	r.remove(1)
	removed := time.Now()
	select {
	case <-cut:
	case <-time.After(10 * time.Second):
		t.Fatal("the probe goes on")
	}
	if took := time.Since(removed); took > 2*time.Second {
		t.Errorf("the probe ended after %v, want within 2s", took)
	}
	workers, groups, planned := r.monitor.Watched()
	for range 1000 {
		if workers+groups+planned == 0 {
			break
		}
		<-tick.C
		workers, groups, planned = r.monitor.Watched()
	}
	if workers+groups+planned > 0 {
		t.Errorf("%d workers in %d groups are watched, %d probes planned", workers, groups, planned)
	}
	before := asked.Load()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := asked.Load() - before; n != 0 {
		t.Errorf("%d probes after the removal", n)
	}
}

// A fleet in which something changes all the time is probed all the same.
func TestProbesGoOnWhileTheFleetFlaps(t *testing.T) {
	bubble(t, health.DefaultConfig(), func(t *testing.T, w *world) {
		w.join(t, names(50)...)
		for range 1000 {
			w.change(func() {})
			w.wait(20 * time.Millisecond)
		}
		for _, name := range names(50) {
			if n := len(w.times(name)); n < 3 {
				t.Errorf("%s was asked %d times in 20s, want 3 and more", name, n)
			}
		}
	})
}

func TestReconsiderIsToldOnceAChange(t *testing.T) {
	bubble(t, health.DefaultConfig(), func(t *testing.T, w *world) {
		w.join(t, "w1", "w2")
		w.wait(10 * time.Minute)
		if w.reconsidered != 0 {
			t.Errorf("told %d times while nothing changed", w.reconsidered)
		}
		w.set("w1", "refused")
		w.wait(10 * time.Minute)
		if w.reconsidered != 1 {
			t.Errorf("told %d times of one ejection", w.reconsidered)
		}
	})
}
