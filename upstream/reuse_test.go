package upstream_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/upstream"
)

const ok2 = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// openBody does a call and returns its body and a function that sends the
// worker one more byte.
func openBody(t *testing.T, c *upstream.Client, w *fake) (*upstream.Body, func()) {
	t.Helper()
	call := new(upstream.Call)
	req := post("{}")
	b, err := c.Do(call, w.ep, req, new(fasthttp.ResponseHeader))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, func() {
		if _, err := upstream.Socket(b).Write([]byte("!")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestH6_WorkerThatClosesIdleConnectionsCausesNoError(t *testing.T) {
	var served atomic.Int32
	idle := 40 * time.Millisecond
	w := serve(t, func(p *peer) {
		for {
			p.SetReadDeadline(time.Now().Add(idle))
			if _, _, ok := p.request(); !ok {
				return
			}
			served.Add(1)
			p.say(ok2)
		}
	})
	c := newClient(t, nil)
	for i := range 50 {
		mustFetch(t, c, w.ep, "ok")
		<-time.After(idle + time.Duration(i%9)*time.Millisecond - 4*time.Millisecond)
	}
	if n := served.Load(); n != 50 {
		t.Errorf("the worker served %d requests, want each of 50 exactly once", n)
	}
	t.Logf("%d connections, %+v", w.accepted.Load(), c.Stats())
}

func TestStaleConnectionCostsExactlyOneResend(t *testing.T) {
	for name, leave := range map[string]func(*peer){"FIN": func(*peer) {}, "RST": (*peer).reset} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			w := serve(t, func(p *peer) {
				for n := 0; ; n++ {
					if _, _, ok := p.request(); !ok {
						return
					}
					requests.Add(1)
					if p.index < 2 && n == 1 { // goes away instead of a second answer
						leave(p)
						return
					}
					p.say(ok2)
				}
			})
			c := newClient(t, nil)
			for range 3 {
				mustFetch(t, c, w.ep, "ok")
			}
			s := c.Stats()
			if s.Resent != 2 || requests.Load() != 5 || s.Failed != 0 {
				t.Errorf("%d requests, %+v; want 2 resends", requests.Load(), s)
			}
		})
	}
}

func TestResendThatFailsTooIsReturned(t *testing.T) {
	w := serve(t, func(p *peer) {
		p.request()
		if p.index == 0 {
			p.say(ok2)
			p.request()
		}
	})
	c := newClient(t, nil)
	mustFetch(t, c, w.ep, "ok")
	_, _, err := fetch(c, w.ep, post("{}"))
	if e := failed(t, err); e.Reused || !e.Retryable() {
		t.Errorf("%+v", e)
	}
	if n := w.accepted.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

func TestNothingIsResentOnceTheAnswerHasBegunOrTimeHasRunOut(t *testing.T) {
	for name, second := range map[string]func(*peer){
		"one byte of the answer": func(p *peer) { p.say("H"); <-time.After(20 * time.Millisecond) },
		"time-out":               func(p *peer) { p.waitClosed() },
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, func(p *peer) {
				p.request()
				p.say(ok2)
				if _, _, ok := p.request(); ok {
					second(p)
				}
			})
			c := newClient(t, func(c *upstream.Config) { c.FirstByteTimeout = 200 * time.Millisecond })
			mustFetch(t, c, w.ep, "ok")
			_, _, err := fetch(c, w.ep, post("{}"))
			if e := failed(t, err); !e.Reused {
				t.Errorf("%+v", e)
			}
			if n := w.accepted.Load(); n != 1 {
				t.Errorf("%d connections: the request was sent again", n)
			}
		})
	}
}

func TestUnsolicitedBytesAreNotTakenForAnAnswer(t *testing.T) {
	said := make(chan struct{}, 2)
	w := serve(t, func(p *peer) {
		for {
			if _, _, ok := p.request(); !ok {
				return
			}
			p.say(ok2)
			if p.index == 0 {
				<-time.After(20 * time.Millisecond) // the connection is in the pool by now
				p.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
				said <- struct{}{}
			}
		}
	})
	c := newClient(t, nil)
	mustFetch(t, c, w.ep, "ok")
	wait(t, "unsolicited answer", said)
	mustFetch(t, c, w.ep, "ok")
	if n := w.accepted.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

func TestPoolKeepsTheLatestAndNoMoreThanItsLimit(t *testing.T) {
	gate := make(chan struct{})
	w := serve(t, func(p *peer) {
		for {
			_, body, ok := p.request()
			if !ok {
				return
			}
			if string(body) == "wait" {
				<-gate
			}
			p.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d", p.index))
		}
	})
	c := newClient(t, func(c *upstream.Config) { c.MaxIdlePerHost = 2 })
	ended := make(chan error, 4)
	for range 4 {
		go func() {
			_, _, err := fetch(c, w.ep, post("wait"))
			ended <- err
		}()
	}
	for w.accepted.Load() < 4 {
		<-time.After(time.Millisecond)
	}
	close(gate)
	for range 4 {
		if err := wait(t, "call", ended); err != nil {
			t.Fatal(err)
		}
	}
	if s := c.Stats(); s.Idle != 2 || s.Open != 2 {
		t.Errorf("%+v, want 2 idle", s)
	}
	_, first, _ := fetch(c, w.ep, post("{}"))
	for range 5 {
		if _, body, err := fetch(c, w.ep, post("{}")); err != nil || body != first {
			t.Errorf("connection %q, want %q again (last in, first out); %v", body, first, err)
		}
	}
}

func TestRunClosesConnectionsThatStayUnused(t *testing.T) {
	closed := make(chan struct{})
	w := serve(t, func(p *peer) {
		p.request()
		p.say(ok2)
		p.waitClosed()
		close(closed)
	})
	c := newClient(t, func(c *upstream.Config) { c.IdleConnTimeout = 50 * time.Millisecond })
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	mustFetch(t, c, w.ep, "ok")
	wait(t, "close at the worker", closed)
	cancel()
	if err := wait(t, "end of Run", ran); err != nil {
		t.Error(err)
	}
	if s := c.Stats(); s.Open != 0 || s.Idle != 0 {
		t.Errorf("%+v", s)
	}
}

func TestConnectionOfACallThatOutlivesCloseIsClosedAtItsEnd(t *testing.T) {
	w := answer(t, ok2)
	c := newClient(t, nil)
	var call upstream.Call
	b, err := c.Do(&call, w.ep, post("{}"), new(fasthttp.ResponseHeader))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if got, err := io.ReadAll(b); string(got) != "ok" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	b.Close()
	if s := c.Stats(); s.Open != 0 {
		t.Errorf("%+v", s)
	}
}
