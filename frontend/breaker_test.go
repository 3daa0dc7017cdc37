package frontend_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/frontend"
)

// breaking opens the breaker of a worker that answers 500.
func (w *world) breaking(t *testing.T, name string) {
	t.Helper()
	for range 5 {
		if got := w.chat(t, "x-routerd-pin", name); got.status != 500 {
			t.Fatalf("%+v", got)
		}
	}
}

func TestE3_AWorkerThatNeverAnswersDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	w := start(t, func(s *setup) { s.upstream.FirstByteTimeout = limit })
	w1 := serve(t, func(p *peer) {
		if _, ok := p.next(); ok {
			p.closedByRouter()
		}
	})
	w.join(t, "w1", w1.url)
	w.join(t, "w2", answering(t, plain("{}")).url)
	w.join(t, "w3", answering(t, plain("{}")).url)
	var stuck sync.WaitGroup
	ends := make(chan time.Duration, 50)
	for range 50 {
		c := client(t)
		stuck.Go(func() {
			began := time.Now()
			if got, err := w.try(t, c, "POST", chatPath, chatBody, "x-routerd-pin", "w1"); err != nil || got.status != 504 {
				t.Errorf("%v %+v", err, got)
			}
			ends <- time.Since(began)
		})
	}
	eventually(t, "50 stuck requests", func() bool { return w1.seen.Load() == 50 })
	var took []time.Duration
	for _, c := range []int{200, 50} { // while they are stuck, and after
		if c == 50 {
			stuck.Wait()
		}
		cl := client(t)
		for range c {
			began := time.Now()
			if got, err := w.try(t, cl, "POST", chatPath, chatBody); err != nil || got.status != 200 {
				t.Fatalf("%v %+v", err, got)
			}
			took = append(took, time.Since(began))
		}
	}
	if n := w1.seen.Load(); n != 50 {
		t.Errorf("%d further requests reached w1", n-50)
	}
	close(ends)
	var shortest, longest time.Duration = time.Hour, 0
	for d := range ends {
		shortest, longest = min(shortest, d), max(longest, d)
	}
	slices.Sort(took)
	t.Logf("others: median %v, slowest %v; stuck: %v to %v", took[len(took)/2], took[len(took)-1], shortest, longest)
	if most := took[len(took)-1]; most > 10*50*time.Millisecond {
		t.Errorf("one of the others took %v", most)
	}
	if shortest < limit-500*time.Millisecond || longest > limit+10*500*time.Millisecond {
		t.Errorf("stuck ones ended after %v to %v", shortest, longest)
	}
	began := time.Now()
	got := w.chat(t, "x-routerd-pin", "w1")
	checkError(t, got, 503, "worker_unreachable")
	checkRetryAfter(t, got)
	if took := time.Since(began); took > time.Second || w1.seen.Load() != 50 {
		t.Errorf("a pinned request was sent, or held for %v", took)
	}
}

func TestE5_TheOnlyWorkerIsNotDialledForEver(t *testing.T) {
	w := start(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	addr := ln.Addr().String()
	w.join(t, "w1", "http://"+addr)
	for i := range 20 {
		id, began := fmt.Sprintf("id-%d-", i), time.Now()
		got := w.chat(t, "X-Request-Id", id)
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v", took)
		}
		checkError(t, got, 503, "worker_unreachable")
		checkRetryAfter(t, got)
		for _, text := range []string{"127.0.0.1", "dial", "refused", "connect:", "breaker"} {
			if strings.Contains(got.body, text) {
				t.Errorf("the body holds %q: %s", text, got.body)
			}
		}
		found := false
		for line := range strings.SplitSeq(w.log.String(), "\n") {
			found = found || strings.Contains(line, addr) && strings.Contains(line, "refused") && strings.Contains(line, id)
		}
		if !found {
			t.Errorf("no log line with address, error and %s in:\n%s", id, w.log)
		}
	}
	if n := w.upstream.Stats().Dialled; n != 5 {
		t.Errorf("%d dials for 20 requests", n)
	}
	if n := w.active(""); n != 0 {
		t.Errorf("%d bookings left", n)
	}
}

func TestWhatABreakerHoldsBackGoesElsewhereAsNoRetry(t *testing.T) {
	o := &outcomes{}
	w := start(t, func(s *setup) {
		s.frontend.Retries, s.outcomes = 0, o
		s.policy = scoring("builtin:round-robin")
	})
	w1, w2 := answering(t, status(500)), answering(t, plain("{}"))
	w.join(t, "w1", w1.url)
	w.join(t, "w2", w2.url)
	w.breaking(t, "w1")
	o.take()
	for range 20 {
		if got := w.chat(t); got.status != 200 || got.header.Get("X-Routerd-Worker") != "w2" {
			t.Fatalf("%+v", got)
		}
	}
	got := w.chat(t, "x-routerd-pin", "w1")
	checkError(t, got, 503, "worker_unreachable")
	if n, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || n < 1 || n > 2 {
		t.Errorf("Retry-After %q, the cooldown is 2s", got.header.Get("Retry-After"))
	}
	if n := w1.seen.Load(); n != 5 {
		t.Errorf("w1 saw %d requests", n)
	}
	if n := w.metric(t, "routerd_frontend_retries_total"); n != 0 {
		t.Errorf("%v retries", n)
	}
	if n := w.log.Count("worker not called"); n < 1 || n > 4 {
		t.Errorf("%d requests were sent to w1's breaker: it should be passed over", n)
	}
	for _, h := range o.take() {
		if h != "w2 success" {
			t.Errorf("heard %q", h)
		}
	}
	if n := w.active(""); n != 0 {
		t.Errorf("%d bookings left", n)
	}
}

func TestManyOpenBreakersHoldARequestBackAFewTimesOnly(t *testing.T) {
	w := start(t, func(s *setup) { s.upstream.Breaker.Failures, s.upstream.Breaker.Cooldown = 1, time.Minute })
	for i := range 20 {
		name := fmt.Sprintf("w%d", i)
		w.join(t, name, answering(t, status(500)).url)
		w.chat(t, "x-routerd-pin", name)
	}
	got := w.chat(t)
	checkError(t, got, 503, "worker_unreachable")
	if got.header.Get("Retry-After") != "60" {
		t.Errorf("Retry-After %q, the cooldown is a minute", got.header.Get("Retry-After"))
	}
	if n := w.log.Count("worker not called"); n != 5 {
		t.Errorf("%d workers were tried", n)
	}
}

// ordered has each attempt of a request go to the worker whose turn it is.
type ordered struct {
	*core.SelectionCore
	turns []string
}

func (o *ordered) Select(ctx context.Context, req *core.Request) (*core.Selection, error) {
	turn := *req
	turn.Allow = []string{}
	if i := int(req.Attempt); i < len(o.turns) {
		turn.Allow = o.turns[i : i+1]
	}
	return o.SelectionCore.Select(ctx, &turn)
}

func TestARefusalThatWasKeptIsTheAnswerAlsoBesideOpenBreakers(t *testing.T) {
	for name, turns := range map[string][]string{
		"refused first":               {"full", "sick0"},
		"refused last":                {"sick0", "full"},
		"between open breakers":       {"sick0", "full", "sick1"},
		"more of them than are tried": {"full", "sick0", "sick1", "sick2", "sick3", "sick4", "sick5"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &ordered{}
			w := start(t, func(s *setup) {
				s.upstream.Breaker.Failures, s.upstream.Breaker.Cooldown = 1, time.Minute
				s.selector = func(c *core.SelectionCore) frontend.Selector {
					o.SelectionCore = c
					return o
				}
			})
			const full = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nfull"
			w.join(t, "full", answering(t, full).url)
			for i := range 6 {
				name := fmt.Sprintf("sick%d", i)
				w.join(t, name, answering(t, status(500)).url)
				o.turns = []string{name}
				w.chat(t)
			}
			o.turns = turns
			got := w.chat(t)
			if got.status != 503 || got.body != "full" || got.header.Get("Retry-After") != "7" || got.header.Get("X-Routerd-Worker") != "full" {
				t.Errorf("got %+v, want the refusal", got)
			}
			if n := w.active(""); n != 0 {
				t.Errorf("%d bookings left", n)
			}
		})
	}
}

func TestARecoveringWorkerGetsOneOfAHundredRequests(t *testing.T) {
	t.Parallel()
	w := start(t, func(s *setup) {
		s.upstream.Breaker.Cooldown, s.upstream.Breaker.MaxCooldown = 50*time.Millisecond, 50*time.Millisecond
	})
	var sick atomic.Bool
	sick.Store(true)
	var trials atomic.Int32
	answerNow := make(chan struct{})
	w.join(t, "w1", serve(t, func(p *peer) {
		for {
			if _, ok := p.next(); !ok {
				return
			}
			if sick.Load() {
				p.say(status(500))
				continue
			}
			trials.Add(1)
			<-answerNow
			p.say(plain("{}"))
		}
	}).url)
	w.join(t, "w2", answering(t, plain("{}")).url)
	w.breaking(t, "w1")
	sick.Store(false)
	<-time.After(60 * time.Millisecond)
	var herd sync.WaitGroup
	var others atomic.Int32
	for i := range 100 {
		c := client(t)
		herd.Go(func() {
			got, err := w.try(t, c, "POST", chatPath, chatBody)
			if err != nil || got.status != 200 {
				t.Errorf("request %d: %v %+v", i, err, got)
			}
			if got.header.Get("X-Routerd-Worker") == "w2" {
				others.Add(1)
			}
		})
	}
	eventually(t, "the others are served", func() bool { return others.Load() == 99 && trials.Load() == 1 })
	close(answerNow)
	herd.Wait()
	if got := w.chat(t, "x-routerd-pin", "w1"); got.status != 200 {
		t.Errorf("after its trial: %+v", got)
	}
}
