package upstream_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/upstream"
)

// large is more than the sockets' buffers take.
const large = 16 << 20

func TestE5_RefusedConnectionFailsAtOnceInTheDialPhase(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	began := time.Now()
	_, _, err = fetch(newClient(t, nil), endpoint(t, "http://"+ln.Addr().String()), post("{}"))
	e := failed(t, err)
	if e.Phase != upstream.PhaseDial || e.Timeout || !e.Retryable() || e.Addr != ln.Addr().String() {
		t.Errorf("%+v", e)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func TestE3_WorkerThatNeverAnswersTimesOutInTheHeadPhase(t *testing.T) {
	w := serve(t, func(p *peer) { p.waitClosed() })
	c := newClient(t, func(c *upstream.Config) { c.FirstByteTimeout = 200 * time.Millisecond })
	began := time.Now()
	_, _, err := fetch(c, w.ep, post("{}"))
	e := failed(t, err)
	if e.Phase != upstream.PhaseHead || !e.Timeout || !e.Retryable() || e.BytesRead != 0 {
		t.Errorf("%+v", e)
	}
	if took := time.Since(began); took < 200*time.Millisecond || took > 2*time.Second {
		t.Errorf("took %v, want 200ms", took)
	}
	if s := c.Stats(); s.TimedOut != 1 || s.Failed != 1 || s.Open != 0 {
		t.Errorf("%+v", s)
	}
}

func TestInterimAnswersDoNotExtendTheFirstByteTimeout(t *testing.T) {
	w := serve(t, func(p *peer) {
		p.request()
		for range 10 {
			p.say("HTTP/1.1 100 Continue\r\n\r\n")
			<-time.After(50 * time.Millisecond)
		}
		p.waitClosed()
	})
	c := newClient(t, func(c *upstream.Config) { c.FirstByteTimeout = 150 * time.Millisecond })
	_, _, err := fetch(c, w.ep, post("{}"))
	if e := failed(t, err); e.Phase != upstream.PhaseHead || !e.Timeout || e.Retryable() {
		t.Errorf("%+v", e)
	}
}

func TestPauseInTheBodyTimesOutAndProgressDoesNot(t *testing.T) {
	w := serve(t, func(p *peer) {
		p.request()
		p.say(sse + "Transfer-Encoding: chunked\r\n\r\n")
		for range 8 {
			p.say(chunk("data: 1\n\n"))
			<-time.After(100 * time.Millisecond)
		}
		p.waitClosed()
	})
	c := newClient(t, func(c *upstream.Config) { c.IdleReadTimeout = 600 * time.Millisecond })
	_, body, err := fetch(c, w.ep, post("{}"))
	if e := failed(t, err); e.Phase != upstream.PhaseBody || !e.Timeout || e.Retryable() {
		t.Errorf("%+v", e)
	}
	if want := strings.Repeat("data: 1\n\n", 8); body != want {
		t.Errorf("%q arrived before the pause, want %q", body, want)
	}
}

func TestWorkerThatStopsReadingTimesOutInTheWritePhase(t *testing.T) {
	done := make(chan struct{})
	w := serve(t, func(*peer) { <-done })
	t.Cleanup(func() { close(done) })
	c := newClient(t, func(c *upstream.Config) { c.WriteTimeout = 150 * time.Millisecond })
	_, _, err := fetch(c, w.ep, post(string(make([]byte, large))))
	if e := failed(t, err); e.Phase != upstream.PhaseWrite || !e.Timeout || !e.Retryable() {
		t.Errorf("%+v", e)
	}
}

func TestS4_ConnectionClosedBeforeTheFirstByteIsRetryable(t *testing.T) {
	for name, leave := range map[string]func(*peer){"FIN": func(*peer) {}, "RST": (*peer).reset} {
		w := serve(t, func(p *peer) {
			p.request()
			leave(p)
		})
		_, _, err := fetch(newClient(t, nil), w.ep, post("{}"))
		if e := failed(t, err); !e.Retryable() || e.Timeout || e.Reused || e.Phase != upstream.PhaseHead {
			t.Errorf("%s: %+v", name, e)
		}
		if n := w.accepted.Load(); n != 1 {
			t.Errorf("%s: %d connections; a new connection's failure is the caller's to retry", name, n)
		}
	}
}

func TestResetInsideTheBodyIsAnError(t *testing.T) {
	for name, head := range map[string]string{"length": "Content-Length: 100\r\n\r\n", "until close": "\r\n"} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, func(p *peer) {
				p.request()
				p.say("HTTP/1.1 200 OK\r\n" + head + "hello")
				p.br.Peek(1) // the test says that it has the bytes
				p.reset()
			})
			b, turn := openBody(t, newClient(t, nil), w)
			if n, err := b.Read(make([]byte, 5)); n != 5 || err != nil {
				t.Fatal(n, err)
			}
			turn()
			_, err := b.Read(make([]byte, 5))
			if e := failed(t, err); e.Phase != upstream.PhaseBody || e.Retryable() {
				t.Errorf("%+v", e)
			}
			if _, again := b.Read(make([]byte, 5)); !errors.Is(again, err) {
				t.Errorf("the error does not stay: %v", again)
			}
		})
	}
}

func TestEarlyAnswerToALargeBodyIsRead(t *testing.T) {
	const refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}"
	for name, then := range map[string]func(*peer, chan struct{}){
		"and closes":            func(*peer, chan struct{}) {},
		"and resets":            func(p *peer, _ chan struct{}) { p.reset() },
		"and reads no more":     func(_ *peer, done chan struct{}) { <-done },
		"and shuts its sending": func(p *peer, done chan struct{}) { p.Conn.(*net.TCPConn).CloseWrite(); <-done },
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			w := serve(t, func(p *peer) {
				p.Read(make([]byte, 1024))
				p.say(refusal)
				<-time.After(50 * time.Millisecond) // the answer is there before the reset
				then(p, done)
			})
			t.Cleanup(func() { close(done) })
			c := newClient(t, func(c *upstream.Config) { c.WriteTimeout = 2 * time.Second })
			status, body, err := fetch(c, w.ep, post(string(make([]byte, large))))
			if err != nil || status != 413 || body != "{}" {
				t.Errorf("%d %q, %v; want 413", status, body, err)
			}
			if s := c.Stats(); s.Open != 0 {
				t.Errorf("a connection with half a request was kept: %+v", s)
			}
		})
	}
}

func TestLargeBodyToASlowReaderArrives(t *testing.T) {
	w := serve(t, func(p *peer) {
		<-time.After(350 * time.Millisecond) // longer than the slices of a write
		if _, body, ok := p.request(); ok && len(body) == large {
			p.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	status, body, err := fetch(newClient(t, nil), w.ep, post(string(make([]byte, large))))
	if err != nil || status != 200 || body != "ok" {
		t.Errorf("%d %q, %v", status, body, err)
	}
}
