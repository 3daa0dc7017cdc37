package frontend_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/frontend"
)

func TestG1_StreamsUnderWayEndAndNothingNewBegins(t *testing.T) {
	w := start(t)
	goOn := make(chan struct{})
	w.join(t, "w1", serve(t, func(p *peer) {
		if _, ok := p.next(); !ok {
			return
		}
		p.say(sse + event("1"))
		<-goOn
		p.say(event("2") + event("[DONE]") + lastChunk)
	}).url)
	streams := make([]streamed, 10)
	for i := range streams {
		streams[i] = w.stream(t, client(t))
	}
	idle := w.raw(t, "GET /health HTTP/1.1\r\nHost: r\r\n\r\n")
	readUntil(t, idle, `"ok"`)
	drained := make(chan error, 1)
	go func() { drained <- w.Drain(context.Background()) }()
	eventually(t, "refused connections", func() bool {
		nc, err := net.Dial("tcp", w.addr)
		if err == nil {
			nc.Close()
		}
		return err != nil
	})
	if b, err := io.ReadAll(idle); len(b) > 0 {
		t.Errorf("%q, %v on an idle connection", b, err)
	}
	select {
	case err := <-drained:
		t.Fatalf("drained with streams under way: %v", err)
	default:
	}
	close(goOn)
	for i, resp := range streams {
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n" {
			t.Errorf("stream %d: %q, %v", i, b, err)
		}
	}
	if err := wait(t, "drain", drained); err != nil {
		t.Error(err)
	}
	if err := w.Drain(t.Context()); err != nil {
		t.Errorf("second drain: %v", err)
	}
}

func TestG2_IdleConnectionsHoldNobodyUp(t *testing.T) {
	w := start(t)
	for i := range 200 {
		send := ""
		if i%2 == 0 {
			send = "GET /health HTTP/1.1\r\nHost: r\r\n\r\n"
		}
		nc := w.raw(t, send)
		if send != "" {
			readUntil(t, nc, `"ok"`)
		}
	}
	begun := time.Now()
	if err := w.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	took := time.Since(begun)
	t.Logf("drained in %v", took)
	if took > 3*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestG3_WhatOutlivesTheGraceIsCut(t *testing.T) {
	w := start(t, func(s *setup) { s.frontend.Grace = 200 * time.Millisecond })
	closed := make(chan struct{}, 2)
	script := func(head string) func(p *peer) {
		return func(p *peer) {
			if _, ok := p.next(); !ok {
				return
			}
			p.say(head)
			p.closedByRouter()
			closed <- struct{}{}
		}
	}
	w.join(t, "w1", serve(t, script(sse+event("1"))).url)
	w.join(t, "w2", serve(t, script("")).url)
	resp := w.stream(t, client(t), "x-routerd-pin", "w1")
	waiting := w.raw(t, post(chatPath, chatBody, "x-routerd-pin: w2"))
	slow := w.raw(t, "POST "+chatPath+" HTTP/1.1\r\nHost: r\r\nContent-Length: 100\r\n\r\n{")
	eventually(t, "both bookings", func() bool { return w.active("") == 2 })
	begun := time.Now()
	if err := w.Drain(t.Context()); !errors.Is(err, frontend.ErrGrace) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begun); took < 200*time.Millisecond || took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	wait(t, "close at a worker", closed)
	wait(t, "close at a worker", closed)
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the cut stream ended as if it were whole")
	}
	if b, _ := io.ReadAll(waiting); !strings.HasPrefix(string(b), "HTTP/1.1 503 ") {
		t.Errorf("%q", b)
	}
	if _, err := io.ReadAll(slow); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	if n := w.active(""); n != 0 {
		t.Errorf("%d bookings left", n)
	}
	if n := w.metric(t, "routerd_frontend_client_cancelled_total"); n != 0 {
		t.Errorf("%v counted as gone clients", n)
	}
}

func TestDrainBeforeServeEndsServeAtOnce(t *testing.T) {
	s, err := frontend.New(frontend.DefaultConfig(), nil, nil, nil, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{nil, frontend.ErrServed} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		if err := s.Serve(ln); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

func TestRequestsOnKeptConnectionsAreRefusedInADrain(t *testing.T) {
	w := start(t)
	goOn := make(chan struct{})
	w.join(t, "w1", serve(t, func(p *peer) {
		for {
			if _, ok := p.next(); !ok {
				return
			}
			<-goOn
			p.say(plain("{}"))
		}
	}).url)
	// The second request of this connection is there before the drain begins.
	nc := w.raw(t, post(chatPath, chatBody)+post(chatPath, chatBody))
	eventually(t, "booking", func() bool { return w.active("w1") == 1 })
	drained := make(chan error, 1)
	go func() { drained <- w.Drain(context.Background()) }()
	eventually(t, "the listener's end", func() bool {
		c, err := net.Dial("tcp", w.addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(goOn)
	b, err := io.ReadAll(nc)
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 ") || strings.Count(string(b), "HTTP/1.1") != 1 {
		t.Errorf("%q, %v", b, err)
	}
	if err := wait(t, "drain", drained); err != nil {
		t.Error(err)
	}
}

func TestHalfSentRequestsHoldNoDrainUp(t *testing.T) {
	t.Parallel()
	w := start(t)
	goOn := make(chan struct{})
	w.join(t, "w1", serve(t, func(p *peer) {
		if _, ok := p.next(); ok {
			<-goOn
			p.say(plain("{}"))
		}
	}).url)
	whole := w.raw(t, post(chatPath, chatBody))
	kept := w.raw(t, "GET /health HTTP/1.1\r\nHost: r\r\n\r\n")
	readUntil(t, kept, `"ok"`)
	half := []net.Conn{kept}
	for _, send := range []string{
		"POST " + chatPath + " HTTP/1.1\r\nHo",
		"POST " + chatPath + " HTTP/1.1\r\nHost: r\r\nContent-Length: 100\r\n\r\n",
		"POST " + chatPath + " HTTP/1.1\r\nHost: r\r\nContent-Length: 100\r\n\r\n{",
		"POST " + chatPath + " HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
		"POST /nope HTTP/1.1\r\nHost: r\r\nContent-Length: 100\r\n\r\n{",
	} {
		half = append(half, w.raw(t, send))
	}
	if _, err := io.WriteString(kept, "GET /hea"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "booking", func() bool { return w.active("w1") == 1 })
	drained := make(chan error, 1)
	go func() { drained <- w.Drain(context.Background()) }()
	begun := time.Now()
	for i, nc := range half {
		_, _ = io.ReadAll(nc)
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("connection %d stayed for %v", i, took)
		}
	}
	select {
	case err := <-drained:
		t.Fatalf("drained with a request under way: %v", err)
	default:
	}
	close(goOn)
	if b, err := io.ReadAll(whole); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 ") {
		t.Errorf("%q, %v", b, err)
	}
	if err := wait(t, "drain", drained); err != nil {
		t.Error(err)
	}
}
