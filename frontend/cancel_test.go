package frontend_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/routerd/routerd/prompt"
	"github.com/routerd/routerd/upstream"
)

// quick is ten times the 100 ms within which a client's leaving is acted on.
const quick = time.Second

func TestD1_AClientThatGoesFreesTheBookingInEveryPhase(t *testing.T) {
	tokenising := make(chan struct{}, 1)
	for _, phase := range []string{"tokenising", "head", "silent stream", "half close"} {
		t.Run(phase, func(t *testing.T) {
			reached, closed := make(chan struct{}, 1), make(chan struct{})
			w := start(t, func(s *setup) {
				if phase == "tokenising" {
					s.tokens.answer = func(ctx context.Context, _ prompt.Input) ([]uint32, prompt.Outcome) {
						tokenising <- struct{}{}
						<-ctx.Done()
						return nil, prompt.Cancelled
					}
				}
			})
			wk := serve(t, func(p *peer) {
				if _, ok := p.next(); !ok {
					return
				}
				if phase != "head" {
					p.say(sse + event("1") + event("2") + event("3"))
				}
				reached <- struct{}{}
				p.closedByRouter()
				close(closed)
			})
			w.join(t, "w1", wk.url)
			nc := w.raw(t, post(chatPath, `{"model":"m","stream":true,"messages":[]}`))
			if phase == "tokenising" {
				wait(t, "tokeniser", tokenising)
			} else {
				wait(t, "worker", reached)
			}
			if phase == "silent stream" || phase == "half close" {
				readUntil(t, nc, "data: 3\n\n")
			}
			if phase != "tokenising" && w.active("w1") != 1 {
				t.Errorf("%d active", w.active("w1"))
			}
			left := time.Now()
			if phase == "half close" {
				_ = nc.(*net.TCPConn).CloseWrite()
			} else {
				nc.Close()
			}
			if phase != "tokenising" {
				wait(t, "close at the worker", closed)
				t.Logf("the worker saw it after %v", time.Since(left))
			}
			eventually(t, "release", func() bool {
				return w.active("w1") == 0 && w.metric(t, "routerd_frontend_client_cancelled_total") == 1 && w.metric(t, "routerd_frontend_in_flight") == 0
			})
			if took := time.Since(left); took > quick {
				t.Errorf("took %v", took)
			}
			if n := w.metric(t, "routerd_frontend_worker_failures_total"); n != 0 {
				t.Errorf("%v worker failures", n)
			}
			if got := w.released.kinds(); phase != "tokenising" && (got["cancelled"] != 1 || len(got) != 1) {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestAHalfClosedClientIsServedWhenSoConfigured(t *testing.T) {
	w := start(t, func(s *setup) { s.frontend.HalfClose = "ignore" })
	wk, pieces := told(t, sse)
	w.join(t, "w1", wk.url)
	nc := w.raw(t, post(chatPath, `{"model":"m","stream":true,"messages":[]}`))
	pieces <- event("1")
	readUntil(t, nc, "data: 1\n\n")
	_ = nc.(*net.TCPConn).CloseWrite()
	pieces <- event("[DONE]") + lastChunk
	close(pieces)
	readUntil(t, nc, "[DONE]\n\n")
}

// readUntil reads until the text has come.
func readUntil(t testing.TB, r io.Reader, text string) string {
	t.Helper()
	var b strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(b.String(), text) {
		n, err := r.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v before %q, after %q", err, text, b.String())
		}
	}
	return b.String()
}

func TestD3_AnAbortedStreamNeverMixesWithTheNextAnswer(t *testing.T) {
	w := start(t)
	w.join(t, "w1", serve(t, func(p *peer) {
		for {
			r, ok := p.next()
			if !ok {
				return
			}
			if !strings.Contains(string(r.body), "stream") {
				p.say(plain(string(r.body)))
				continue
			}
			p.say(sse)
			for i := range 50 {
				p.say(event(fmt.Sprint(i)))
			}
		}
	}).url)
	c := client(t)
	for i := range 100 {
		resp := w.stream(t, &http.Client{Transport: &http.Transport{}})
		br := bufio.NewReader(resp.Body)
		for range 4 {
			if _, err := br.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		resp.Body.Close()
		body := fmt.Sprintf(`{"model":"m","prompt":"%d"}`, i)
		if got, err := w.try(t, c, "POST", textPath, body); err != nil || got.body != body {
			t.Fatalf("round %d: %v %+v", i, err, got)
		}
	}
	eventually(t, "release", func() bool { return w.active("") == 0 })
}

func TestD4_ASlowReaderCostsLittleMemoryAndNobodyElse(t *testing.T) {
	const size = 24 << 20 // the small size, above what the system's buffers take
	sent := make(chan struct{})
	w := start(t)
	w.join(t, "big", serve(t, func(p *peer) {
		if _, ok := p.next(); !ok {
			return
		}
		p.say(sse)
		piece := chunk("data: " + strings.Repeat("x", 32<<10) + "\n\n")
		for range size / (32 << 10) {
			p.say(piece)
		}
		p.say(event("[DONE]") + lastChunk)
		close(sent)
	}).url)
	w.join(t, "small", answering(t, plain("{}")).url)
	nc := w.raw(t, "")
	_ = nc.(*net.TCPConn).SetReadBuffer(16 << 10) // first, or it grows by itself
	if _, err := io.WriteString(nc, post(chatPath, `{"model":"m","stream":true,"messages":[]}`, "x-routerd-pin: big")); err != nil {
		t.Fatal(err)
	}
	readUntil(t, nc, "xxx")
	before := heap()
	var wg sync.WaitGroup
	for range 20 {
		c := client(t)
		wg.Go(func() {
			for range 5 {
				if got, err := w.try(t, c, "POST", chatPath, chatBody, "x-routerd-pin", "small"); err != nil || got.status != 200 {
					t.Errorf("%v %+v", err, got)
				}
			}
		})
	}
	wg.Wait()
	select {
	case <-sent:
		t.Error("the worker could send everything: the router buffers without bound")
	default:
	}
	if grown := int64(heap()) - int64(before); grown > 4<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	nc.Close()
	eventually(t, "release", func() bool { return w.active("") == 0 })
}

func TestE3_AStuckWorkerEndsIn504AndLeavesTheRotation(t *testing.T) {
	stuckSeen := make(chan struct{}, 64)
	w := start(t, func(s *setup) {
		s.upstream = upstream.DefaultConfig()
		s.upstream.FirstByteTimeout = 300 * time.Millisecond
		s.policy = scoring("builtin:round-robin")
	})
	w.join(t, "w1", serve(t, func(p *peer) {
		if _, ok := p.next(); ok {
			stuckSeen <- struct{}{}
			p.closedByRouter()
		}
	}).url)
	w.join(t, "w2", answering(t, plain("{}")).url)
	w.join(t, "w3", answering(t, plain("{}")).url)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			begun := time.Now()
			if got := w.chat(t, "x-routerd-pin", "w1"); got.status != 504 || !strings.Contains(got.body, "worker_timeout") {
				t.Errorf("%+v", got)
			}
			if took := time.Since(begun); took < 250*time.Millisecond || took > 3*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
	for range 10 {
		wait(t, "request at w1", stuckSeen)
	}
	wg.Wait()
	c := client(t)
	for range 50 {
		if got, err := w.try(t, c, "POST", chatPath, chatBody); err != nil || got.status != 200 {
			t.Fatalf("%v %+v", err, got)
		}
	}
	if n := len(stuckSeen); n != 0 {
		t.Errorf("%d further requests reached w1", n)
	}
}

func TestAWorkerThatFailsIsInhibitedInTheCoreUntilItAnswers(t *testing.T) {
	var dead atomic.Bool
	dead.Store(true)
	w := start(t)
	w.join(t, "w1", serve(t, func(p *peer) {
		if _, ok := p.next(); ok && !dead.Load() {
			p.say(plain("{}"))
			p.closedByRouter()
		}
	}).url)
	w.join(t, "w2", answering(t, plain("{}")).url)
	inhibited := func() bool {
		for _, r := range w.core.Partitions()[0].Ranks {
			if r.Name == "w1" && len(r.Reasons) > 0 {
				return true
			}
		}
		return false
	}
	if got := w.chat(t, "x-routerd-pin", "w1"); got.status != 502 || !inhibited() {
		t.Fatalf("inhibited: %v, %+v", inhibited(), got)
	}
	dead.Store(false)
	if got := w.chat(t, "x-routerd-pin", "w1"); got.status != 200 || inhibited() {
		t.Errorf("inhibited: %v, %+v", inhibited(), got)
	}
}

func TestRetriesAreBoundedPerRequestAndOverall(t *testing.T) {
	refusing := func(p *peer) { p.next() }
	w := start(t, func(s *setup) { s.frontend.Retries = 2 })
	for i := range 5 {
		w.join(t, fmt.Sprintf("w%d", i), serve(t, refusing).url)
	}
	if got := w.chat(t); got.status != 502 {
		t.Fatalf("%+v", got)
	}
	if n := w.metric(t, "routerd_frontend_retries_total"); n != 2 {
		t.Errorf("%v retries of one request", n)
	}
	for range 60 {
		w.chat(t)
	}
	if n := w.metric(t, "routerd_frontend_retries_total"); n > 17 {
		t.Errorf("%v retries of 61 requests", n)
	}
	if n := w.active(""); n != 0 {
		t.Errorf("%d bookings left", n)
	}
}

func TestAPinnedRequestIsNotTriedElsewhere(t *testing.T) {
	w := start(t)
	w.join(t, "w1", serve(t, func(p *peer) { p.next() }).url)
	ok := answering(t, plain("{}"))
	w.join(t, "w2", ok.url)
	if got := w.chat(t, "x-routerd-pin", "w1"); got.status != 502 {
		t.Errorf("%+v", got)
	}
	if n := ok.seen.Load(); n != 0 {
		t.Errorf("w2 saw %d requests", n)
	}
}

func TestARefusalMayBeTriedElsewhereAndElsePasses(t *testing.T) {
	const busy = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"
	w := start(t)
	first := answering(t, busy)
	w.join(t, "w1", first.url)
	if got := w.chat(t); got.status != 503 || got.body != "busy" || got.header.Get("Retry-After") != "7" {
		t.Errorf("alone: %+v", got)
	}
	w.join(t, "w2", answering(t, plain("{}")).url)
	for range 4 {
		if got := w.chat(t); got.status != 200 || got.header.Get("X-Routerd-Worker") != "w2" {
			t.Errorf("%+v", got)
		}
	}
	if n := w.metric(t, "routerd_frontend_worker_failures_total"); n != 0 {
		t.Errorf("%v failures: a refusal is none", n)
	}
}
