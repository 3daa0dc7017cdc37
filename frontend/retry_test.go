package frontend_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/frontend"
)

// inTurn makes two workers that answer a request's attempts with one raw answer
// each, whichever of them is asked first.
func (w *world) inTurn(t testing.TB, answers ...string) {
	t.Helper()
	var asked atomic.Int64
	for _, name := range []string{"w1", "w2"} {
		w.join(t, name, serve(t, func(p *peer) {
			for {
				if _, ok := p.next(); !ok {
					return
				}
				p.say(answers[int(asked.Add(1)-1)%len(answers)])
			}
		}).url)
	}
}

// refusal is a 503 whose header and body belong together.
func refusal(name string) string {
	return fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nX-From: %s\r\nContent-Length: %d\r\n\r\n%[1]s", name, len(name))
}

func TestAfterARefusalTheNextAnswerIsWholeItsOwn(t *testing.T) {
	const length = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
	long := strings.Repeat("x", 100<<10)
	for _, c := range []struct{ name, raw, body string }{
		{"short", plain(`{"good":1}`), `{"good":1}`},
		{"empty", length + "0\r\n\r\n", ""},
		{"long", plain(long), long},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("{") + chunk("}") + lastChunk, "{}"},
		{"events", sse + event("1") + event("[DONE]") + lastChunk, "data: 1\n\ndata: [DONE]\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := start(t)
			w.inTurn(t, refusal("refused"), c.raw)
			if got := w.chat(t); got.status != 200 || got.body != c.body || got.header.Get("X-From") != "" {
				t.Errorf("%d %.40q, header %v", got.status, got.body, got.header)
			}
			old := w.raw(t, strings.Replace(post(chatPath, chatBody), "HTTP/1.1", "HTTP/1.0", 1))
			b, err := io.ReadAll(old)
			if _, body, _ := strings.Cut(string(b), "\r\n\r\n"); err != nil || body != c.body {
				t.Errorf("HTTP/1.0: %.200q, %v", b, err)
			}
			if k := w.released.kinds(); k["failed"] != 0 {
				t.Errorf("bookings ended as %v", k)
			}
		})
	}
}

func TestOfTwoRefusalsHeaderAndBodyBelongTogether(t *testing.T) {
	w := start(t)
	w.inTurn(t, refusal("first"), refusal("the second"))
	if got := w.chat(t); got.status != 503 || got.body != "the second" || got.header.Get("X-From") != "the second" {
		t.Errorf("%d %q %v", got.status, got.body, got.header)
	}
}

func TestARefusalThatDoesNotEndIsTriedElsewhere(t *testing.T) {
	t.Parallel()
	const begun = "HTTP/1.1 503 Service Unavailable\r\nX-From: refused\r\nContent-Length: 100\r\n\r\npart"
	for name, stays := range map[string]bool{"breaks off": false, "stalls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			var asked, good atomic.Int64
			good.Store(1) // the attempt that is answered
			script := func(p *peer) {
				for {
					if _, ok := p.next(); !ok {
						return
					}
					if asked.Add(1)-1 == good.Load() {
						p.say(plain("{}"))
						continue
					}
					p.say(begun)
					if stays {
						p.closedByRouter()
					}
					return
				}
			}
			w.join(t, "w1", serve(t, script).url)
			w.join(t, "w2", serve(t, script).url)
			if got := w.chat(t); got.status != 200 || got.body != "{}" || got.header.Get("X-From") != "" {
				t.Errorf("%+v", got)
			}
			good.Store(-1)
			got := w.chat(t)
			checkError(t, got, 503, "worker_failed")
			if got.header.Get("Retry-After") == "" || got.header.Get("X-From") != "" {
				t.Errorf("header %v", got.header)
			}
			if n := w.active(""); n != 0 {
				t.Errorf("%d bookings left", n)
			}
			if n := w.metric(t, "routerd_frontend_worker_failures_total"); n != 3 {
				t.Errorf("%v failures", n)
			}
		})
	}
}

func TestALongRefusalIsRelayedHoweverSlow(t *testing.T) {
	t.Parallel()
	w := start(t)
	body := strings.Repeat("x", 64<<10)
	w.join(t, "w2", answering(t, plain("{}")).url)
	w.join(t, "w1", serve(t, func(p *peer) {
		if _, ok := p.next(); !ok {
			return
		}
		p.say(fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n%s", len(body)+4, body))
		<-time.After(1100 * time.Millisecond)
		p.say("tail")
	}).url)
	if got := w.chat(t, "x-routerd-allow", "w1"); got.status != 503 || got.body != body+"tail" {
		t.Errorf("%d, %d bytes", got.status, len(got.body))
	}
}

// misaddressed gives worker w1 an address that nobody can read.
type misaddressed struct{ *core.SelectionCore }

func (m misaddressed) Select(ctx context.Context, req *core.Request) (*core.Selection, error) {
	sel, err := m.SelectionCore.Select(ctx, req)
	if err == nil && sel.Name == "w1" {
		sel.Endpoint = "ftp://user:SECRET@nowhere"
	}
	return sel, err
}

func TestAWorkerWithoutAUsableAddressCountsAsUnreached(t *testing.T) {
	w := start(t, func(s *setup) {
		s.selector = func(c *core.SelectionCore) frontend.Selector { return misaddressed{c} }
	})
	w.join(t, "w1", "http://127.0.0.1:9")
	checkError(t, w.chat(t), 503, "worker_unreachable")
	if n := len(w.core.Partitions()[0].Ranks[0].Reasons); n == 0 {
		t.Error("the worker is not inhibited")
	}
	w.join(t, "w2", answering(t, plain("{}")).url)
	for range 4 {
		if got := w.chat(t); got.status != 200 {
			t.Errorf("%+v", got)
		}
	}
	if n := w.metric(t, "routerd_frontend_worker_failures_total", "w1"); n == 0 {
		t.Error("no failure was counted")
	}
	if strings.Contains(w.log.String(), "SECRET") {
		t.Errorf("log: %s", w.log)
	}
}

// An address of the inside is nothing for a client, and no engine answers with one.
func TestARedirectOfAWorkerIsAFailedAnswer(t *testing.T) {
	w := start(t)
	w.inTurn(t, "HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1:47101/v1/chat/completions\r\nContent-Length: 0\r\n\r\n")
	got := w.chat(t)
	if got.status != 502 || got.header.Get("Location") != "" || strings.Contains(got.body, "10.0.0.1") {
		t.Errorf("%d %q %v", got.status, got.body, got.header)
	}
	if k := w.released.kinds(); k["failed"] != 1 {
		t.Errorf("bookings ended as %v", k)
	}
}
