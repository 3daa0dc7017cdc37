package sim_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
)

func TestFaultOrdersAreStrict(t *testing.T) {
	b := startEngine(t, nil)
	for _, tc := range []struct{ body, param string }{
		{`{"kind":"stall","cout":3}`, "cout"},
		{`{"kind":"stall","status":500}`, "status"},
		{`{"kind":"stall","Count":3}`, "Count"},
		{`{"kind":"explode"}`, "kind"},
		{`{}`, "kind"},
		{`{"kind":"stall","count":0}`, "count"},
		{`{"kind":"stall","count":"3"}`, "count"},
		{`{"kind":"stall","after_chunks":-1}`, "after_chunks"},
		{`{"kind":"error"}`, "after_chunks"},
		{`{"kind":"status"}`, "status"},
		{`{"kind":"status","status":99}`, "status"},
		{`{"kind":"delay"}`, "delay"},
		{`{"kind":"delay","delay":"-1s"}`, "delay"},
		{`{"kind":"drop_events","rank":1}`, "rank"},
		{`{"kind":"drop_replies","mode":"loud"}`, "mode"},
		{`{"kind":"reset","path":"v1"}`, "path"},
		{`{"kind":"reset_prefix_cache","count":2}`, "count"},
	} {
		status, raw := b.do("POST", "/sim/faults", tc.body)
		var v struct {
			Error struct{ Param, Message string }
		}
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		if status != 400 || v.Error.Param != tc.param || !strings.Contains(v.Error.Message, tc.param) {
			t.Errorf("%s: status %d %s", tc.body, status, raw)
		}
	}
	if status, _ := b.do("POST", "/sim/faults", `[1]`); status != 400 {
		t.Errorf("a list was accepted: %d", status)
	}
	if _, raw := b.do("GET", "/sim/faults", ""); string(raw) != `{"faults":[]}` {
		t.Errorf("left over: %s", raw)
	}
}

func TestE1_StatusFaultAnswersTheNextRequestsInTurn(t *testing.T) {
	b := startEngine(t, nil)
	b.ok("POST", "/sim/faults", `{"kind":"status","status":429,"headers":{"Retry-After":"3"},"body":{"error":{"message":"busy"}}}`)
	b.ok("POST", "/sim/faults", `{"kind":"status","status":503,"count":2,"body":"plain words"}`)
	for _, want := range []struct {
		status     int
		retryAfter string
		body       string
	}{{429, "3", `{"error":{"message":"busy"}}`}, {503, "", "plain words"}, {503, "", "plain words"}} {
		resp := b.send(t.Context(), "POST", "/v1/completions", `{"prompt":"x"}`)
		raw, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want.status || resp.Header.Get("Retry-After") != want.retryAfter || string(raw) != want.body {
			t.Errorf("got %d %q %q %v, want %+v", resp.StatusCode, resp.Header.Get("Retry-After"), raw, err, want)
		}
	}
	b.ok("POST", "/v1/completions", `{"prompt":"x"}`)
	if c := b.stats(); c.Requests != 4 || c.Ranks[0].Requests != 1 {
		t.Errorf("requests %d, at the rank %d; want 4 and 1", c.Requests, c.Ranks[0].Requests)
	}
}

func TestS4_ResetClosesBeforeAnyByte(t *testing.T) {
	b := startEngine(t, nil)
	b.ok("POST", "/sim/faults", `{"kind":"reset","count":2}`)
	b.client.Transport.(*http.Transport).DisableKeepAlives = true // no silent retry by the client
	for range 2 {
		if resp, err := b.trySend(t.Context(), "POST", "/v1/chat/completions", hello+`}`); err == nil {
			t.Errorf("answered with %d", resp.StatusCode)
			resp.Body.Close()
		}
	}
	b.ok("POST", "/v1/chat/completions", hello+`}`)
}

func TestResetAfterChunksTruncatesTheStream(t *testing.T) {
	b := startEngine(t, nil)
	b.ok("POST", "/sim/faults", `{"kind":"reset","after_chunks":2}`)
	list, err := b.stream(t.Context(), "/v1/completions", `{"prompt":"x","stream":true}`).rest()
	if err == nil || len(list) != 2 {
		t.Errorf("%d events, %v", len(list), err)
	}
	c := b.waitStats("its slot is free", func(c counts) bool { return c.Running == 0 })
	if c.Cancelled != 0 {
		t.Error("a cut on command was counted as the client's")
	}
}

func TestErrorAfterChunksEndsTheStreamWithAnErrorEvent(t *testing.T) {
	b := startEngine(t, nil)
	b.ok("POST", "/sim/faults", `{"kind":"error","after_chunks":2}`)
	list, err := b.stream(t.Context(), "/v1/chat/completions", hello+`,"stream":true}`).rest()
	if err != nil || len(list) != 4 || list[3] != "[DONE]" {
		t.Fatalf("%v, %q", err, list)
	}
	if want := `{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}`; list[2] != want {
		t.Errorf("error event %s", list[2])
	}
	b.waitStats("its slot is free", func(c counts) bool { return c.Running == 0 })
}

func TestE3_StallNeverAnswersUntilTheClientLeavesOrFaultsAreCleared(t *testing.T) {
	b := startEngine(t, nil)
	b.ok("POST", "/sim/faults", `{"kind":"stall","count":2}`)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		resp, err := b.trySend(ctx, "POST", "/v1/completions", `{"prompt":"x"}`, "X-Request-Id", "stuck")
		if err == nil {
			resp.Body.Close()
		}
		gone <- err
	}()
	b.waitStats("it arrived", func(c counts) bool { return c.Requests == 1 })
	cancel()
	if err := <-gone; err == nil {
		t.Error("a stalled request was answered")
	}
	c := b.waitStats("it was seen to leave", func(c counts) bool { return c.Cancelled == 1 })
	if c.Cancellations[0].ID != "stuck" || c.Ranks[0].Requests != 0 {
		t.Errorf("stats %+v", c)
	}

	answered := make(chan int, 1)
	go func() {
		resp, err := b.trySend(t.Context(), "POST", "/v1/completions", `{"prompt":"x"}`)
		if err != nil {
			answered <- 0
			return
		}
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	b.waitStats("the second arrived", func(c counts) bool { return c.Requests == 2 })
	b.ok("DELETE", "/sim/faults", "")
	if got := <-answered; got != 200 {
		t.Errorf("after the faults were cleared: status %d", got)
	}
}

func TestD1_StallMidStreamSeesTheClientLeave(t *testing.T) {
	b := startEngine(t, nil)
	b.ok("POST", "/sim/faults", `{"kind":"stall","after_chunks":3}`)
	ctx, cancel := context.WithCancel(t.Context())
	s := b.stream(ctx, "/v1/completions", longStream)
	for range 3 {
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
	}
	b.waitStats("it holds its slot", func(c counts) bool { return c.Running == 1 })
	cancel()
	b.waitStats("it was seen to leave", func(c counts) bool { return c.Running == 0 && c.Cancelled == 1 })
}

func TestDelayHoldsOtherRoutesToo(t *testing.T) {
	b := startEngine(t, nil)
	b.ok("POST", "/sim/faults", `{"kind":"delay","delay":"60ms","path":"/tokenize"}`)
	b.ok("POST", "/v1/completions", `{"prompt":"x"}`) // not meant
	start := time.Now()
	b.ok("POST", "/tokenize", `{"prompt":"x"}`)
	if took := time.Since(start); took < 60*time.Millisecond {
		t.Errorf("answered after %s", took)
	}
}

func TestRestartForgetsTheCacheAndCutsRunningRequests(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.BlockSize, c.DecodePerToken = 4, time.Millisecond })
	s := b.stream(t.Context(), "/v1/completions", longStream)
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	b.ok("POST", "/v1/completions", `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":1}`)
	if got := b.ok("POST", "/sim/restart", "")["restarts"]; got != 1.0 {
		t.Errorf("restarts %v", got)
	}
	if _, err := s.rest(); err == nil {
		t.Error("a running stream survived")
	}
	c := b.waitStats("nothing runs", func(c counts) bool { return c.Running == 0 })
	if c.Ranks[0].Blocks != 0 || c.Cancelled != 0 {
		t.Errorf("after the restart: %+v", c)
	}
	if got := usageOf(b.ok("POST", "/v1/completions", `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":1}`)); got[2] != 0 {
		t.Errorf("cached %d tokens after a restart", got[2])
	}
}

func TestResetPrefixCacheEmptiesOneRank(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.Ranks, c.BlockSize = 2, 4 })
	for _, r := range []string{"0", "1"} {
		b.ok("POST", "/v1/completions", `{"prompt":[1,2,3,4,5],"max_tokens":1}`, "X-data-parallel-rank", r)
	}
	b.ok("POST", "/sim/faults", `{"kind":"reset_prefix_cache","rank":1}`)
	if c := b.stats(); c.Ranks[0].Blocks != 1 || c.Ranks[1].Blocks != 0 {
		t.Errorf("blocks %d and %d", c.Ranks[0].Blocks, c.Ranks[1].Blocks)
	}
	if status, _ := b.do("POST", "/reset_prefix_cache", ""); status != 200 {
		t.Errorf("status %d", status)
	}
	if c := b.stats(); c.Ranks[0].Blocks != 0 {
		t.Errorf("blocks %d after /reset_prefix_cache", c.Ranks[0].Blocks)
	}
}
