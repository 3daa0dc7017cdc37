package upstream_test

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/upstream"
)

// ended waits for a call and asserts that it was cancelled in phase.
func ended(t *testing.T, result <-chan error, phase upstream.Phase) {
	t.Helper()
	err := wait(t, "end of the cancelled call", result)
	e := failed(t, err)
	if !e.Cancelled || e.Timeout || e.Retryable() || !errors.Is(err, upstream.ErrCancelled) {
		t.Errorf("%+v: must be cancelled and nothing else", e)
	}
	if e.Phase != phase {
		t.Errorf("phase %v, want %v", e.Phase, phase)
	}
}

func TestD1_CancelEndsTheCallInEveryPhase(t *testing.T) {
	for _, phase := range []upstream.Phase{upstream.PhaseWrite, upstream.PhaseHead, upstream.PhaseBody} {
		t.Run(phase.String(), func(t *testing.T) {
			reached, closed := make(chan struct{}), make(chan time.Time, 1)
			w := serve(t, func(p *peer) {
				switch phase {
				case upstream.PhaseWrite:
					p.Read(make([]byte, 1)) // then read no more
					close(reached)
					<-closed
					return
				case upstream.PhaseHead:
					p.request()
				case upstream.PhaseBody:
					p.request()
					p.say(sse + "Transfer-Encoding: chunked\r\n\r\n" + chunk("data: 1\n\n"))
				}
				if phase != upstream.PhaseBody { // there the client says it
					close(reached)
				}
				p.waitClosed()
				closed <- time.Now()
			})
			body := "{}"
			if phase == upstream.PhaseWrite {
				body = string(make([]byte, large))
				t.Cleanup(func() { close(closed) })
			}
			c := newClient(t, nil)
			var call upstream.Call
			result := make(chan error, 1)
			go func() {
				b, err := c.Do(&call, w.ep, post(body), new(fasthttp.ResponseHeader))
				if err == nil {
					close(reached)
					_, err = io.Copy(io.Discard, b)
					b.Close()
				}
				result <- err
			}()
			wait(t, "the phase", reached)
			began := time.Now()
			call.Cancel()
			call.Cancel()
			ended(t, result, phase)
			if phase != upstream.PhaseWrite {
				t.Logf("the worker saw the close after %v", wait(t, "close at the worker", closed).Sub(began))
			}
			if _, err := c.Do(&call, w.ep, post("{}"), new(fasthttp.ResponseHeader)); !failed(t, err).Cancelled {
				t.Errorf("attempt after Cancel: %v", err)
			}
			if s := c.Stats(); s.Open != 0 || s.Failed != 0 || s.Cancelled != 2 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestCancelBetweenTheLastByteAndCloseKeepsNoConnection(t *testing.T) {
	w := answer(t, ok2)
	c := newClient(t, nil)
	var call upstream.Call
	b, err := c.Do(&call, w.ep, post("{}"), new(fasthttp.ResponseHeader))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, b); err != nil {
		t.Fatal(err)
	}
	call.Cancel()
	b.Close()
	if s := c.Stats(); s.Open != 0 || s.Idle != 0 {
		t.Errorf("%+v", s)
	}
}

func TestD3_AbortedStreamNeverMixesWithTheNextAnswer(t *testing.T) {
	w := serve(t, func(p *peer) {
		for {
			_, body, ok := p.request()
			if !ok {
				return
			}
			if string(body) != "stream" {
				p.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
				continue
			}
			p.say(sse + "Transfer-Encoding: chunked\r\n\r\n")
			for i := range 20 {
				p.say(chunk(fmt.Sprintf("data: %d\n\n", i)))
			}
		}
	})
	c := newClient(t, nil)
	for i := range 100 {
		var call upstream.Call
		b, err := c.Do(&call, w.ep, post("stream"), new(fasthttp.ResponseHeader))
		if err != nil {
			t.Fatal(err)
		}
		io.ReadFull(b, make([]byte, 20))
		if i%2 == 0 {
			call.Cancel()
		}
		b.Close()
		mine := fmt.Sprintf("answer %d", i)
		if _, body, err := fetch(c, w.ep, post(mine)); err != nil || body != mine {
			t.Fatalf("round %d: %q, %v", i, body, err)
		}
	}
}

func TestCancelAtAnyMomentLeavesNothing(t *testing.T) {
	w := answer(t, sse+"Transfer-Encoding: chunked\r\n\r\n"+chunk("data: 1\n\n")+"0\r\n\r\n")
	c := newClient(t, nil)
	var wg sync.WaitGroup
	for i := range 300 {
		var call upstream.Call
		wg.Add(1)
		time.AfterFunc(time.Duration(i)*time.Microsecond, func() { call.Cancel(); wg.Done() })
		b, err := c.Do(&call, w.ep, post("{}"), new(fasthttp.ResponseHeader))
		if err == nil {
			_, err = io.Copy(io.Discard, b)
			b.Close()
		}
		if err != nil && !failed(t, err).Cancelled {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	wg.Wait()
	mustFetch(t, c, w.ep, "data: 1\n\n")
	c.Close()
	if s := c.Stats(); s.Open != 0 || s.Idle != 0 {
		t.Errorf("%+v", s)
	}
}
