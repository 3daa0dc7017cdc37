package upstream_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/upstream"
)

// eventually polls a condition until it holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// running starts the client's Run for the length of the test.
func running(t *testing.T, c *upstream.Client) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := wait(t, "end of Run", ended); err != nil {
			t.Error(err)
		}
	})
}

// briefly makes breakers that open for a short time.
func briefly(c *upstream.Config) {
	c.Breaker.Cooldown, c.Breaker.MaxCooldown = 50*time.Millisecond, 50*time.Millisecond
}

func TestE5_AWorkerThatRefusesConnectionsIsNoLongerDialled(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	c, ep := newClient(t, nil), endpoint(t, "http://"+ln.Addr().String())
	for range 5 {
		if _, _, err := fetch(c, ep, post("{}")); errors.Is(err, upstream.ErrBreakerOpen) {
			t.Fatal("open too early")
		}
	}
	for range 10 {
		_, _, err := fetch(c, ep, post("{}"))
		e := failed(t, err)
		if !errors.Is(e, upstream.ErrBreakerOpen) || e.Phase != upstream.PhasePrepare || !e.Retryable() || e.RetryAfter <= 0 || e.RetryAfter > 2*time.Second {
			t.Errorf("%+v", e)
		}
		if text := e.Error(); !strings.Contains(text, ln.Addr().String()) || !strings.Contains(text, "refused") {
			t.Errorf("%q does not say who and why", text)
		}
	}
	if n := c.Stats().Dialled; n != 5 {
		t.Errorf("%d dials", n)
	}
	// What asks for other things than clients' requests has no part in it.
	if _, _, err := c.Post(t.Context(), ep.String(), "/tokenize", nil); err == nil || errors.Is(err, upstream.ErrBreakerOpen) {
		t.Errorf("post: %v", err)
	}
}

func TestARecoveringWorkerGetsOneRequestNotAHerd(t *testing.T) {
	var sick, herd atomic.Bool
	sick.Store(true)
	var at, most, seen atomic.Int32
	answerNow := make(chan struct{})
	w := serve(t, func(p *peer) {
		for {
			if _, _, ok := p.request(); !ok {
				return
			}
			if sick.Load() {
				p.say("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
				continue
			}
			if !herd.Load() {
				seen.Add(1)
				most.Store(max(most.Load(), at.Add(1)))
				<-answerNow
				at.Add(-1)
			}
			p.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	c := newClient(t, briefly)
	var mu sync.Mutex
	var told []bool
	c.OnBreaker(func(worker string, open bool, reason string) {
		mu.Lock()
		defer mu.Unlock()
		if worker != w.ep.String() || reason == "" {
			t.Errorf("told of %q: %q", worker, reason)
		}
		told = append(told, open)
	})
	running(t, c)
	for range 5 {
		if status, _, err := fetch(c, w.ep, post("{}")); status != 500 {
			t.Fatal(status, err)
		}
	}
	sick.Store(false)
	eventually(t, "the end of the cooldown", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(told, []bool{true, false})
	})
	var held, good atomic.Int32
	var calls sync.WaitGroup
	for range 100 {
		calls.Go(func() {
			switch status, _, err := fetch(c, w.ep, post("{}")); {
			case errors.Is(err, upstream.ErrBreakerOpen):
				held.Add(1)
			case status == 200:
				good.Add(1)
			default:
				t.Errorf("%d, %v", status, err)
			}
		})
	}
	eventually(t, "the herd is held back", func() bool { return held.Load() == 99 && seen.Load() == 1 })
	herd.Store(true)
	close(answerNow)
	calls.Wait()
	if good.Load() != 1 || most.Load() != 1 {
		t.Errorf("%d answered, %d at once", good.Load(), most.Load())
	}
	for range 10 {
		mustFetch(t, c, w.ep, "ok")
	}
	eventually(t, "the breaker is forgotten", func() bool { return c.Remembered() == 0 })
	if !slices.Equal(told, []bool{true, false, false}) {
		t.Errorf("told %v", told)
	}
}

func TestATrialThatIsCancelledLeavesTheTurn(t *testing.T) {
	var sick atomic.Bool
	sick.Store(true)
	asked := make(chan struct{}, 1)
	w := serve(t, func(p *peer) {
		for {
			head, _, ok := p.request()
			switch {
			case !ok:
				return
			case sick.Load():
				p.say("HTTP/1.1 502 Oops\r\nContent-Length: 0\r\n\r\n")
			case strings.Contains(head, "GET"):
				asked <- struct{}{}
				p.waitClosed()
				return
			default:
				p.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		}
	})
	c := newClient(t, briefly)
	for range 5 {
		fetch(c, w.ep, post("{}"))
	}
	sick.Store(false)
	<-time.After(60 * time.Millisecond)
	var trial upstream.Call
	ended := make(chan error, 1)
	go func() {
		_, err := c.Do(&trial, w.ep, method("GET"), &fasthttp.ResponseHeader{})
		ended <- err
	}()
	wait(t, "the trial", asked)
	if _, _, err := fetch(c, w.ep, post("{}")); !errors.Is(err, upstream.ErrBreakerOpen) {
		t.Errorf("beside the trial: %v", err)
	}
	trial.Cancel()
	if e := failed(t, wait(t, "its end", ended)); !e.Cancelled {
		t.Errorf("%+v", e)
	}
	mustFetch(t, c, w.ep, "ok")
}

// A worker that hangs while it is tried keeps no trial for ever: that would be the last.
func TestATrialThatIsNotAnsweredFailsWithTheTimeToTheFirstByte(t *testing.T) {
	var sick atomic.Bool
	sick.Store(true)
	asked := make(chan struct{}, 1)
	w := serve(t, func(p *peer) {
		for {
			if _, _, ok := p.request(); !ok {
				return
			}
			if sick.Load() {
				p.say("HTTP/1.1 502 Oops\r\nContent-Length: 0\r\n\r\n")
				continue
			}
			asked <- struct{}{}
			p.waitClosed()
			return
		}
	})
	const limit = 300 * time.Millisecond
	c := newClient(t, func(cfg *upstream.Config) {
		briefly(cfg)
		cfg.FirstByteTimeout = limit
	})
	var mu sync.Mutex
	var told []bool
	c.OnBreaker(func(_ string, open bool, _ string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, open)
	})
	for range 5 {
		fetch(c, w.ep, post("{}"))
	}
	sick.Store(false)
	for range 2 { // the turn comes again
		began := time.Now()
		ended := make(chan error, 1)
		go func() {
			var err error
			for held := true; held; held = errors.Is(err, upstream.ErrBreakerOpen) {
				_, _, err = fetch(c, w.ep, post("{}"))
			}
			ended <- err
		}()
		wait(t, "the trial", asked)
		if _, _, err := fetch(c, w.ep, post("{}")); !errors.Is(err, upstream.ErrBreakerOpen) {
			t.Errorf("beside the trial: %v", err)
		}
		if e := failed(t, wait(t, "its end", ended)); !e.Timeout || e.Phase != upstream.PhaseHead {
			t.Errorf("the trial: %+v", e)
		}
		if took := time.Since(began); took < limit || took > 10*limit {
			t.Errorf("the trial took %v", took)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(told, []bool{true, false, true, false, true}) {
		t.Errorf("told that it is open: %v", told)
	}
}

func TestBreakersAreCountedWithoutALabelPerWorker(t *testing.T) {
	c, reg := newClient(t, nil), prometheus.NewRegistry()
	if err := c.Register(reg); err != nil {
		t.Fatal(err)
	}
	read := func() (series int, values map[string]float64) {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values = map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				series++
				name := f.GetName()
				if strings.Contains(name, "breaker") && len(m.GetLabel()) == 1 {
					name += " " + m.GetLabel()[0].GetValue()
				}
				values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return series, values
	}
	before, _ := read()
	for range 3 {
		w := answer(t, "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
		for range 7 {
			fetch(c, w.ep, post("{}"))
		}
	}
	after, got := read()
	if after != before {
		t.Errorf("%d series became %d", before, after)
	}
	for name, want := range map[string]float64{
		"routerd_upstream_breaker_refused_total": 6, "routerd_upstream_breaker_changes_total open": 3,
		"routerd_upstream_breakers open": 3, "routerd_upstream_breakers half_open": 0,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func TestAFailingNeighbourAddsNoAllocation(t *testing.T) {
	ep := loopback(t, ok2)
	c := newClient(t, nil)
	sick := answer(t, "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
	for range 6 {
		fetch(c, sick.ep, post("{}"))
	}
	req, buf := post("{}"), make([]byte, 4096)
	var hdr fasthttp.ResponseHeader
	var call upstream.Call
	if n := testing.AllocsPerRun(200, func() { roundTrip(t, c, ep, req, &hdr, &call, buf) }); n != 0 {
		t.Errorf("%v allocations a round trip", n)
	}
}

// BenchmarkBreakers is what the breakers add to one call.
func BenchmarkBreakers(b *testing.B) {
	for name, sick := range map[string]bool{"all well": false, "a neighbour is open": true} {
		b.Run(name, func(b *testing.B) {
			s := upstream.NewBreakers(upstream.DefaultBreakerConfig(), func(string, bool, string) {})
			if sick {
				ep := endpoint(b, "http://sick:1")
				for range 5 {
					p, _ := s.Enter(ep)
					s.Leave(ep, p, refused, 0)
				}
			}
			ep := endpoint(b, "http://well:1")
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					p, _ := s.Enter(ep)
					s.Leave(ep, p, nil, 200)
				}
			})
		})
	}
}
