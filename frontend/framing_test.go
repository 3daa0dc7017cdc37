package frontend_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/upstream"
)

func TestH1_TwoFramingsAreRefused(t *testing.T) {
	w := start(t)
	wk := answering(t, plain("{}"))
	w.join(t, "w1", wk.url)
	body := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(chatBody), chatBody)
	nc := w.raw(t, "POST "+chatPath+" HTTP/1.1\r\nHost: r\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"+body+post(chatPath, chatBody))
	b, err := io.ReadAll(nc)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(b); !strings.HasPrefix(got, "HTTP/1.1 400 ") || strings.Count(got, "HTTP/1.1") != 1 {
		t.Errorf("got %q", got)
	}
	if n := wk.seen.Load(); n != 0 {
		t.Errorf("the worker saw %d requests", n)
	}
}

func TestH2_HopByHopFieldsPassInNeitherDirection(t *testing.T) {
	w := start(t)
	got := make(chan request, 1)
	w.join(t, "w1", serve(t, func(p *peer) {
		r, _ := p.next()
		got <- r
		p.say("HTTP/1.1 200 OK\r\nConnection: X-W\r\nX-W: 1\r\nKeep-Alive: timeout=5\r\nX-Stays: yes\r\nContent-Length: 2\r\n\r\n{}")
	}).url)
	resp := w.rawAnswer(t, post(chatPath, chatBody, "Connection: close, X-Secret-Hop", "X-Secret-Hop: 1", "Keep-Alive: 5", "TE: trailers",
		"Upgrade: h2c", "Proxy-Authorization: x", "Authorization: Bearer k", "X-Other: y", "Expect: 100-continue"))
	_ = resp
	r := wait(t, "request", got)
	for _, name := range []string{"X-Secret-Hop", "Keep-Alive", "TE", "Upgrade", "Proxy-Authorization", "Expect", "Transfer-Encoding"} {
		if v := r.values(name); v != nil {
			t.Errorf("%s reached the worker: %q", name, v)
		}
	}
	if diff := cmp.Diff([]string{"Bearer k", "y"}, append(r.values("Authorization"), r.values("X-Other")...)); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"X-W", "Keep-Alive"} {
		if v := resp.header.Get(name); v != "" {
			t.Errorf("%s reached the client: %q", name, v)
		}
	}
}

func TestH3_RepeatedFieldsStayAndTheRealPeerIsTold(t *testing.T) {
	for mode, want := range map[string]string{"append": "1.1.1.1, 127.0.0.1", "replace": "127.0.0.1"} {
		t.Run(mode, func(t *testing.T) {
			w := start(t, func(s *setup) { s.frontend.ForwardedFor = mode })
			got := make(chan request, 1)
			w.join(t, "w1", serve(t, func(p *peer) {
				r, _ := p.next()
				got <- r
				p.say("HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-M: 1\r\nX-M: 2\r\nContent-Length: 2\r\n\r\n{}")
			}).url)
			a := w.chat(t, "X-Tag", "one", "X-Forwarded-For", "1.1.1.1", "X-Tag", "two", "x-routerd-session", "s", "x-routerd-tenant", "t", "X-Last", "z")
			r := wait(t, "request", got)
			if diff := cmp.Diff([]string{"one", "two"}, r.values("X-Tag")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{want}, r.values("X-Forwarded-For")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"a=1", "b=2", "1", "2"}, append(a.header.Values("Set-Cookie"), a.header.Values("X-M")...)); diff != "" {
				t.Error(diff)
			}
			if n := len(r.values("Content-Length")) + len(r.values("Transfer-Encoding")); n != 1 {
				t.Errorf("%d framing headers", n)
			}
			if n := len(r.values("Host")); n != 1 {
				t.Errorf("%d Host headers", n)
			}
			for _, l := range r.head {
				if strings.HasPrefix(strings.ToLower(l), "x-routerd-") {
					t.Errorf("%q reached the worker", l)
				}
			}
		})
	}
}

func TestTwoForwardedForLinesBecomeOne(t *testing.T) {
	w := start(t)
	wk, got := recording(t)
	w.join(t, "w1", wk.url)
	w.chat(t, "X-Forwarded-For", "1.1.1.1", "X-Forwarded-For", "2.2.2.2", "X-Request-Id", "a", "X-Request-Id", "b")
	r := wait(t, "request", got)
	if diff := cmp.Diff([]string{"1.1.1.1, 2.2.2.2, 127.0.0.1"}, r.values("X-Forwarded-For")); diff != "" {
		t.Error(diff)
	}
	if ids := r.values("X-Request-Id"); len(ids) != 1 {
		t.Errorf("%q", ids)
	}
}

func TestTrailersNeverBecomeHeaders(t *testing.T) {
	w := start(t)
	wk, got := recording(t)
	w.join(t, "w1", wk.url)
	w.join(t, "w2", answering(t, plain("{}")).url)
	send := "POST " + chatPath + " HTTP/1.1\r\nHost: r\r\nConnection: close\r\nx-routerd-allow: w1\r\nTrailer: X-Trail, X-Routerd-Pin\r\nTransfer-Encoding: chunked\r\n\r\n" +
		fmt.Sprintf("%x\r\n%s\r\n0\r\nX-Trail: 1\r\nX-Routerd-Pin: w2\r\nX-Undeclared: 2\r\n\r\n", len(chatBody), chatBody)
	a := w.rawAnswer(t, send)
	if a.status != 200 {
		t.Fatalf("%+v", a)
	}
	r := wait(t, "request", got)
	for _, name := range []string{"X-Trail", "X-Undeclared", "Trailer", "X-Routerd-Pin"} {
		if v := r.values(name); v != nil {
			t.Errorf("%s: %q", name, v)
		}
	}
}

func TestH4_RequestIDs(t *testing.T) {
	w := start(t)
	wk, got := recording(t)
	w.join(t, "w1", wk.url)
	a := w.chat(t, "X-Request-Id", "abc")
	if r := wait(t, "request", got); !slices.Equal(r.values("X-Request-Id"), []string{"abc"}) || a.header.Get("X-Request-Id") != "abc" {
		t.Errorf("%v %v", r.head, a.header)
	}
	ids := map[string]bool{}
	for _, given := range []string{"", "", strings.Repeat("x", 129), "a\x7f"} {
		headers := []string{}
		if given != "" && given != "a\x7f" {
			headers = []string{"X-Request-Id", given}
		}
		a := w.chat(t, headers...)
		id := wait(t, "request", got).values("X-Request-Id")
		if len(id) != 1 || id[0] == "" || id[0] == given || id[0] != a.header.Get("X-Request-Id") || !strings.Contains(w.log.String(), id[0]) || ids[id[0]] {
			t.Errorf("given %q: worker %q, client %q", given, id, a.header.Get("X-Request-Id"))
		}
		ids[id[0]] = true
	}
}

func TestH4_TwoRequestsOfOneIDAreTwoBookings(t *testing.T) {
	w := start(t)
	goOn := make(chan struct{})
	w.join(t, "w1", serve(t, func(p *peer) {
		if _, ok := p.next(); !ok {
			return
		}
		p.say(sse)
		<-goOn
		p.say(event("[DONE]") + lastChunk)
	}).url)
	first := w.stream(t, client(t), "X-Request-Id", "dup")
	second := w.stream(t, client(t), "X-Request-Id", "dup")
	if n := w.active("w1"); n != 2 {
		t.Errorf("%d active", n)
	}
	first.Body.Close()
	eventually(t, "release of the first", func() bool { return w.active("w1") == 1 })
	close(goOn)
	if b, err := io.ReadAll(second.Body); err != nil || string(b) != "data: [DONE]\n\n" {
		t.Errorf("%q, %v", b, err)
	}
	eventually(t, "release of the second", func() bool { return w.active("w1") == 0 })
}

func TestH5_BodiesOverTheLimit(t *testing.T) {
	w := start(t, func(s *setup) { s.frontend.MaxBody = 1 << 20 })
	wk := answering(t, plain("{}"))
	w.join(t, "w1", wk.url)
	big := strings.Repeat("x", 2<<20)
	before := heap()
	got := w.rawAnswer(t, post(chatPath, big))
	checkError(t, got, 413, "body_too_large")
	got = w.rawAnswer(t, "POST "+chatPath+" HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk(big)+lastChunk)
	checkError(t, got, 413, "body_too_large")
	got = w.rawAnswer(t, "POST "+chatPath+" HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"+strings.Repeat(chunk(big[:8<<10]), 256)+lastChunk)
	checkError(t, got, 413, "body_too_large")
	if grown := int64(heap()) - int64(before); grown > 4<<20 {
		t.Errorf("heap grew by %d", grown)
	}
	if n := wk.seen.Load(); n != 0 {
		t.Errorf("the worker saw %d requests", n)
	}
}

func TestH6_WorkersThatCloseIdleConnections(t *testing.T) {
	w := start(t, func(s *setup) { s.upstream = upstream.DefaultConfig() })
	wk := serve(t, func(p *peer) { // closes 5 ms after each answer
		for {
			_ = p.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			if p.worker.seen.Load() == 0 {
				_ = p.SetReadDeadline(time.Time{})
			}
			if _, ok := p.next(); !ok {
				return
			}
			p.say(plain("{}"))
		}
	})
	w.join(t, "w1", wk.url)
	c := client(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := range 50 {
		<-tick.C
		if got, err := w.try(t, c, "POST", chatPath, chatBody); err != nil || got.status != 200 {
			t.Fatalf("request %d: %v %+v", i, err, got)
		}
	}
	if n := wk.seen.Load(); n != 50 {
		t.Errorf("the worker saw %d requests, want 50", n)
	}
}

func TestAChosenRankIsToldToAWorkerOfSeveral(t *testing.T) {
	w := start(t)
	wk, got := recording(t)
	w.join(t, "w1", wk.url, func(r *fleet.Record) { r.DPSize = 2 })
	one, gotOne := recording(t)
	w.join(t, "w2", one.url)
	for _, rank := range []string{"0", "1"} {
		a := w.chat(t, "x-routerd-pin", "w1;rank="+rank, "X-Data-Parallel-Rank", "7")
		if r := wait(t, "request", got); !slices.Equal(r.values("X-Data-Parallel-Rank"), []string{rank}) || a.header.Get("X-Routerd-Rank") != rank {
			t.Errorf("rank %s: worker %q, client %q", rank, r.values("X-Data-Parallel-Rank"), a.header.Get("X-Routerd-Rank"))
		}
	}
	w.chat(t, "x-routerd-pin", "w2", "X-Data-Parallel-Rank", "7")
	if r := wait(t, "request", gotOne); r.values("X-Data-Parallel-Rank") != nil {
		t.Errorf("%q", r.values("X-Data-Parallel-Rank"))
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	w := start(t)
	w.join(t, "w1", serve(t, func(p *peer) {
		for {
			r, ok := p.next()
			if !ok {
				return
			}
			p.say(plain(string(r.body)))
		}
	}).url)
	var send strings.Builder
	for i := range 5 {
		last := []string{}
		if i == 4 {
			last = []string{"Connection: close"}
		}
		send.WriteString(post(textPath, fmt.Sprintf(`{"model":"m","prompt":"%d"}`, i), last...))
	}
	b, err := io.ReadAll(w.raw(t, send.String()))
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for i := range 5 {
		next := strings.Index(string(b), fmt.Sprintf(`"prompt":"%d"`, i))
		if next <= at {
			t.Fatalf("answer %d at %d after %d", i, next, at)
		}
		at = next
	}
}

func TestATargetInAbsoluteFormIsSentOnAsAPath(t *testing.T) {
	w := start(t)
	wk, got := recording(t)
	w.join(t, "w1", wk.url)
	if a := w.rawAnswer(t, post("http://elsewhere.test"+chatPath+"?q=1", chatBody, "Connection: close")); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	r := wait(t, "request", got)
	if r.line != "POST "+chatPath+"?q=1 HTTP/1.1" || !slices.Equal(r.values("Host"), []string{strings.TrimPrefix(wk.url, "http://")}) {
		t.Errorf("%q, Host %q", r.line, r.values("Host"))
	}
	for n := range 60 {
		host := strings.Repeat("h", n+1)
		if a := w.rawAnswer(t, post("http://"+host+chatPath, chatBody, "Connection: close")); a.status != 200 {
			t.Fatalf("host of %d bytes: %+v", n+1, a)
		}
		if r := wait(t, "request", got); r.line != "POST "+chatPath+" HTTP/1.1" {
			t.Errorf("host of %d bytes: %q", n+1, r.line)
		}
	}
	if a := w.rawAnswer(t, "OPTIONS * HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n"); a.status != 404 {
		t.Errorf("OPTIONS *: %+v", a)
	}
}

func TestExpectIsAnsweredHere(t *testing.T) {
	w := start(t)
	wk, got := recording(t)
	w.join(t, "w1", wk.url)
	nc := w.raw(t, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: r\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", chatPath, len(chatBody)))
	readUntil(t, nc, "100 Continue\r\n\r\n")
	io.WriteString(nc, chatBody)
	readUntil(t, nc, "{}")
	if r := wait(t, "request", got); r.values("Expect") != nil {
		t.Error("Expect reached the worker")
	}
}

func TestModelsAreListed(t *testing.T) {
	w := start(t)
	w.join(t, "w1", "http://127.0.0.1:9", func(r *fleet.Record) {
		r.Model = "org/base"
		r.Adapters = []fleet.Adapter{{Name: "tuned"}}
	})
	got := w.do(t, "GET", "/v1/models", "")
	if got.status != 200 || !strings.Contains(got.body, `"id":"org/base"`) || !strings.Contains(got.body, `"parent":"org/base"`) {
		t.Errorf("%+v", got)
	}
	for path, status := range map[string]int{
		"/v1/models/org/base": 200, "/v1/models/org%2Fbase": 200, "/v1/models/tuned": 200, "/v1/models/nope": 404,
		"/v1/models/%zz": 404, "/v1/models/": 404, "/v1/models/a/../tuned": 404,
	} {
		a := w.rawAnswer(t, "GET "+path+" HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n")
		if a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func TestHealthFollowsReadiness(t *testing.T) {
	w := start(t)
	w.join(t, "w1", answering(t, plain("{}")).url)
	for _, ready := range []bool{true, false, true} {
		w.Ready(ready)
		want := map[bool]int{true: 200, false: 503}[ready]
		if got := w.do(t, "GET", "/health", ""); got.status != want {
			t.Errorf("ready %t: health %d", ready, got.status)
		}
		if got := w.chat(t); got.status != want {
			t.Errorf("ready %t: chat %d", ready, got.status)
		}
	}
}

func TestAWorkerCannotSpeakForTheRouter(t *testing.T) {
	w := start(t)
	w.join(t, "w1", answering(t, "HTTP/1.1 200 OK\r\nX-Routerd-Worker: forged\r\nX-A: 1\r\nx-routerd-worker: twice\r\nX-Request-Id: forged\r\nX-B: 1\r\n"+
		"X-A: 2\r\nX-Request-Id: twice\r\nx-routerd-new: forged\r\nX-B: 2\r\nX-A: 3\r\nX-Routerd-Rank: 7\r\nX-Routerd-Decision: d\r\nContent-Length: 2\r\n\r\n{}").url)
	got := w.chat(t, "X-Request-Id", "mine")
	for name, want := range map[string][]string{
		"X-Routerd-Worker": {"w1"}, "X-Request-Id": {"mine"}, "X-Routerd-Rank": {"0"}, "X-Routerd-New": nil,
		"X-A": {"1", "2", "3"}, "X-B": {"1", "2"},
	} {
		if v := got.header.Values(name); !slices.Equal(v, want) {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
	if v := got.header.Values("X-Routerd-Decision"); got.status != 200 || len(v) != 1 || v[0] == "d" {
		t.Errorf("%d, decision %q", got.status, v)
	}
}
