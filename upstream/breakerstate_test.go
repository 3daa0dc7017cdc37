package upstream_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/upstream"
)

// gate is the breakers of one worker, and what they told.
type gate struct {
	*upstream.Breakers
	t    *testing.T
	ep   upstream.Endpoint
	told []string
}

func newGate(t *testing.T, change func(*upstream.BreakerConfig)) *gate {
	cfg := upstream.DefaultBreakerConfig()
	if change != nil {
		change(&cfg)
	}
	g := &gate{t: t, ep: endpoint(t, "http://w:1/a")}
	g.Breakers = upstream.NewBreakers(cfg, func(worker string, open bool, reason string) {
		if worker != g.ep.String() {
			t.Errorf("told of %q", worker)
		}
		g.told = append(g.told, fmt.Sprintf("open %v: %s", open, reason))
	})
	return g
}

var refused = &upstream.Error{Phase: upstream.PhaseDial, Err: syscall.ECONNREFUSED}

// call makes a whole call; false means that the breaker held it back.
func (g *gate) call(err *upstream.Error, status int) bool {
	g.t.Helper()
	p, held := g.Enter(g.ep)
	if held != nil {
		if !errors.Is(held, upstream.ErrBreakerOpen) || !held.Retryable() || held.Phase != upstream.PhasePrepare {
			g.t.Errorf("held back with %+v", held)
		}
		return false
	}
	g.Leave(g.ep, p, err, status)
	return true
}

// open makes the worker's breaker open.
func (g *gate) open() {
	g.t.Helper()
	for range 5 {
		if !g.call(refused, 0) {
			g.t.Fatal("held back too early")
		}
	}
	if g.call(nil, 200) {
		g.t.Fatal("not open after 5 failures")
	}
}

func (g *gate) heard(want ...string) {
	g.t.Helper()
	if diff := cmp.Diff(want, g.told); diff != "" {
		g.t.Errorf("told (-want +got):\n%s", diff)
	}
	g.told = nil
}

func TestOnlyFailuresInARowOpenABreaker(t *testing.T) {
	status := func(n int) func(*gate) { return func(g *gate) { g.call(nil, n) } }
	fails := func(e upstream.Error) func(*gate) { return func(g *gate) { g.call(&e, 200) } }
	for _, c := range []struct {
		name    string
		between func(*gate)
		opens   bool // although this came between failures
	}{
		{"success", status(200), false},
		{"redirect", status(302), false},
		{"the request's fault", status(400), true},
		{"unknown model", status(404), true},
		{"too many", status(429), true},
		{"full", status(503), true},
		{"not implemented", status(501), true},
		{"cancelled", fails(upstream.Error{Phase: upstream.PhaseHead, Cancelled: true, Err: upstream.ErrCancelled}), true},
		{"no free port here", fails(upstream.Error{Phase: upstream.PhaseDial, Err: fmt.Errorf("dial: %w", syscall.EADDRNOTAVAIL)}), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t, nil)
			for range 4 {
				g.call(refused, 0)
				c.between(g)
			}
			g.call(refused, 0)
			if held := !g.call(nil, 429); held != c.opens {
				t.Errorf("%s: open %v", c.name, held)
			}
		})
	}
}

func TestWhatCountsAsAFailure(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    *upstream.Error
		status int
		counts bool
	}{
		{"refused", refused, 0, true},
		{"no answer in time", &upstream.Error{Phase: upstream.PhaseHead, Timeout: true, Err: errors.New("x")}, 0, true},
		{"broken head", &upstream.Error{Phase: upstream.PhaseHead, BytesRead: 9, Err: upstream.ErrMalformed}, 0, true},
		{"write", &upstream.Error{Phase: upstream.PhaseWrite, Err: syscall.EPIPE}, 0, true},
		{"500", nil, 500, true},
		{"502", nil, 502, true},
		{"504", nil, 504, true},
		{"599", nil, 599, true},
		{"501", nil, 501, false},
		{"503", nil, 503, false},
		{"505", nil, 505, false},
		{"429", nil, 429, false},
		{"400", nil, 400, false},
		{"no descriptors here", &upstream.Error{Phase: upstream.PhaseDial, Err: syscall.EMFILE}, 0, false},
		{"cancelled", &upstream.Error{Phase: upstream.PhaseDial, Cancelled: true, Err: upstream.ErrCancelled}, 0, false},
	} {
		g := newGate(t, nil)
		for range 5 {
			g.call(c.err, c.status)
		}
		if held := !g.call(nil, 200); held != c.counts {
			t.Errorf("%s: open %v", c.name, held)
		}
	}
}

func TestABreakersCooldownDoublesWithEachTrialThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		g.open()
		g.heard("open true: 5 failures in a row, the latest: dial: connection refused")
		for _, cooldown := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
			<-time.After(cooldown*time.Second - 1)
			if _, held := g.Enter(g.ep); held == nil || held.RetryAfter != 1 {
				t.Fatalf("cooldown %d: %+v", cooldown, held)
			}
			<-time.After(1)
			if !g.call(refused, 0) {
				t.Fatalf("cooldown %d: no trial", cooldown)
			}
			g.heard("open false: the cooldown is over: one call at a time", "open true: the trial failed: dial: connection refused")
		}
		<-time.After(time.Minute)
		if !g.call(nil, 200) || !g.call(refused, 0) || !g.call(nil, 200) {
			t.Error("held back after a trial that was answered")
		}
		g.heard("open false: the cooldown is over: one call at a time", "open false: answers again")
		g.open()
		if _, held := g.Enter(g.ep); held.RetryAfter != 2*time.Second {
			t.Errorf("the next cooldown begins at %v", held.RetryAfter)
		}
	})
}

func TestHalfOpenOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, func(c *upstream.BreakerConfig) { c.Successes = 2 })
		g.open()
		<-time.After(2 * time.Second)
		for _, end := range []int{429, 200, 400, 200} { // neither leaves the turn to the next
			p, held := g.Enter(g.ep)
			if held != nil {
				t.Fatalf("before %d: %v", end, held)
			}
			for range 3 {
				if _, held := g.Enter(g.ep); held == nil || held.RetryAfter != 0 {
					t.Fatalf("a second call beside the trial: %+v", held)
				}
			}
			g.Leave(g.ep, p, nil, end)
		}
		for range 3 {
			if _, held := g.Enter(g.ep); held != nil {
				t.Errorf("after two good trials: %v", held)
			}
		}
	})
}

func TestCallsOfBeforeABreakersChangeCountNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		var stuck []upstream.Pass
		for range 50 {
			p, _ := g.Enter(g.ep)
			stuck = append(stuck, p)
		}
		late := func(n int, err *upstream.Error, status int) {
			for _, p := range stuck[:n] {
				g.Leave(g.ep, p, err, status)
			}
			stuck = stuck[n:]
		}
		late(5, refused, 0)
		late(10, refused, 0)
		late(5, nil, 200)
		<-time.After(2 * time.Second)
		trial, held := g.Enter(g.ep)
		if held != nil {
			t.Fatal(held)
		}
		late(10, refused, 0)
		late(5, nil, 200)
		if g.call(nil, 200) {
			t.Error("a late answer ended the trial")
		}
		g.Leave(g.ep, trial, nil, 200)
		late(15, refused, 0)
		if !g.call(nil, 200) {
			t.Error("late failures opened the breaker again")
		}
		g.heard("open true: 5 failures in a row, the latest: dial: connection refused",
			"open false: the cooldown is over: one call at a time", "open false: answers again")
	})
}

func TestWithoutCallsACooldownEndsAndABreakerIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		g.call(refused, 0)
		p, _ := g.Enter(g.ep)
		g.call(nil, 200)
		g.Sweep()
		if n := g.Len(); n != 0 {
			t.Errorf("%d remembered of a worker that is well", n)
		}
		g.Leave(g.ep, p, refused, 0) // counts although it began before
		for range 4 {
			g.call(refused, 0)
		}
		g.heard("open true: 5 failures in a row, the latest: dial: connection refused")
		<-time.After(2 * time.Second)
		g.Sweep()
		g.heard("open false: the cooldown is over: one call at a time")
		<-time.After(10 * time.Minute)
		if g.Sweep(); g.Len() != 1 {
			t.Error("forgotten too early")
		}
		<-time.After(time.Second)
		if g.Sweep(); g.Len() != 0 {
			t.Error("remembered though nobody calls")
		}
		for i := range 1000 {
			ep := endpoint(t, fmt.Sprintf("http://w:%d", i+1))
			p, _ := g.Enter(ep)
			g.Leave(ep, p, refused, 0)
		}
		<-time.After(10*time.Minute + time.Second)
		if g.Sweep(); g.Len() != 0 {
			t.Errorf("%d remembered of 1000 that failed once", g.Len())
		}
	})
}

func TestASweepForgetsNoBreakerThatHasJustOpened(t *testing.T) {
	for range 32 { // whichever of the two the sweep looks at first
		synctest.Test(t, func(t *testing.T) {
			var b *upstream.Breakers
			sick, well := endpoint(t, "http://sick:1"), endpoint(t, "http://well:1")
			fail := func(ep upstream.Endpoint, times int) {
				for range times {
					if p, held := b.Enter(ep); held == nil {
						b.Leave(ep, p, refused, 0)
					}
				}
			}
			open := map[string]bool{}
			b = upstream.NewBreakers(upstream.DefaultBreakerConfig(), func(worker string, is bool, _ string) {
				open[worker] = is
				if worker == sick.String() && !is {
					fail(well, 5)
				}
			})
			fail(sick, 5)
			fail(well, 1)
			p, _ := b.Enter(well)
			b.Leave(well, p, nil, 200)
			<-time.After(2 * time.Second)
			b.Sweep()
			if _, held := b.Enter(well); open[well.String()] != (held != nil) {
				t.Fatalf("told that it is open: %v; its calls: %v", open[well.String()], held)
			}
			<-time.After(2 * time.Second)
			b.Sweep()
			if open[well.String()] {
				t.Error("the end of the cooldown was not told")
			}
			fail(well, 5)
			if _, held := b.Enter(well); held == nil || !open[well.String()] {
				t.Errorf("further failures count no more: %v", held)
			}
		})
	}
}

func TestWorkersBehindOneAddressFailApart(t *testing.T) {
	g := newGate(t, nil)
	g.open()
	if _, held := g.Enter(endpoint(t, "http://w:1/b")); held != nil {
		t.Error(held)
	}
}

// Whoever comes to an address is not judged by what failed there before, nor by calls
// that are under way still.
func TestABreakerIsResetForAnotherWorker(t *testing.T) {
	g := newGate(t, nil)
	late, _ := g.Enter(g.ep)
	g.open()
	g.heard("open true: 5 failures in a row, the latest: dial: connection refused")
	g.Reset(g.ep, "another worker is there")
	g.heard("open false: another worker is there")
	for range 4 {
		if !g.call(refused, 0) {
			t.Fatal("held back")
		}
	}
	g.Leave(g.ep, late, refused, 0) // the fifth, but of the one before
	if !g.call(nil, 200) {
		t.Error("held back for a call of the worker before")
	}
	g.Reset(endpoint(t, "http://nobody:1"), "")
	g.open()
}

func TestBreakersThatAreSwitchedOffLetAllPass(t *testing.T) {
	g := newGate(t, nil)
	g.open()
	g.heard("open true: 5 failures in a row, the latest: dial: connection refused")
	off := upstream.DefaultBreakerConfig()
	off.Failures = 0
	g.Configure(off)
	for range 20 {
		if !g.call(refused, 0) {
			t.Fatal("held back")
		}
	}
	g.heard("open false: breakers are off")
	g.Configure(upstream.DefaultBreakerConfig())
	g.open()
}

func TestAWorkersChangesAreToldInOrderAndOneByOne(t *testing.T) {
	var told []bool
	var inside atomic.Int32
	cfg := upstream.BreakerConfig{Failures: 1, Cooldown: 10 * time.Millisecond, MaxCooldown: 10 * time.Millisecond, Successes: 1}
	b := upstream.NewBreakers(cfg, func(_ string, open bool, _ string) {
		if inside.Add(1) != 1 {
			t.Error("told twice at once")
		}
		told = append(told, open)
		<-time.After(15 * time.Millisecond) // the cooldown ends meanwhile
		inside.Add(-1)
	})
	ep := endpoint(t, "http://w:1")
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
				if p, held := b.Enter(ep); held == nil {
					b.Leave(ep, p, refused, 0)
				}
			}
		})
	}
	calls.Wait()
	for i, open := range told { // open, half open, open, …
		if open != (i%2 == 0) {
			t.Fatalf("change %d of %d is out of turn", i, len(told))
		}
	}
	if len(told) < 3 {
		t.Errorf("%d changes", len(told))
	}
}

func TestBreakerConfigNamesTheFieldThatIsOutOfRange(t *testing.T) {
	for field, change := range map[string]func(*upstream.BreakerConfig){
		"failures":     func(c *upstream.BreakerConfig) { c.Failures = -1 },
		"cooldown":     func(c *upstream.BreakerConfig) { c.Cooldown = 0 },
		"max_cooldown": func(c *upstream.BreakerConfig) { c.MaxCooldown = time.Second },
		"successes":    func(c *upstream.BreakerConfig) { c.Successes = 0 },
	} {
		cfg := upstream.DefaultConfig()
		change(&cfg.Breaker)
		want := "breaker: " + field + ":"
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", field, err)
		}
		if err := newClient(t, nil).Configure(cfg.Breaker); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
