package sim_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
)

const longStream = `{"prompt":"long","max_tokens":100000,"ignore_eos":true,"stream":true}`

func TestChunksArriveOneByOne(t *testing.T) {
	b := startEngine(t, nil)
	b.ok("POST", "/sim/faults", `{"kind":"stall","after_chunks":3}`)
	s := b.stream(t.Context(), "/v1/completions", `{"prompt":"x","max_tokens":8,"ignore_eos":true,"stream":true}`)
	// The engine stands still after three chunks, so each of them was flushed.
	for range 3 {
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
	}
	b.waitStats("the stream runs", func(c counts) bool { return c.Running == 1 })
	b.ok("DELETE", "/sim/faults", "")
	list, err := s.rest()
	if err != nil || len(list) != 6 {
		t.Errorf("after the stall: %v, %q", err, list)
	}
	b.waitStats("nothing runs", func(c counts) bool { return c.Running == 0 && c.Cancelled == 0 })
}

func TestTimeModelPaysForUncachedTokensAndEachAnswerToken(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) {
		c.BlockSize, c.PrefillPerToken, c.DecodePerToken = 4, 5*time.Millisecond, 10*time.Millisecond
	})
	body := `{"prompt":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20],"max_tokens":3}`
	for _, least := range []time.Duration{130 * time.Millisecond, 50 * time.Millisecond} {
		start := time.Now()
		v := b.ok("POST", "/v1/completions", body)
		took := time.Since(start)
		if took < least {
			t.Errorf("took %s with %d cached tokens, want at least %s", took, usageOf(v)[2], least)
		}
		t.Logf("took %s, least %s, cached %d", took, least, usageOf(v)[2])
	}
}

func TestRequestsWaitInOrderForASlot(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.Slots = 1; c.DecodePerToken = time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := b.stream(ctx, "/v1/completions", longStream)
	if _, err := first.next(); err != nil {
		t.Fatal(err)
	}
	order := make(chan string, 2)
	ask := func(id string) {
		go func() {
			resp, err := b.trySend(t.Context(), "POST", "/v1/completions", `{"prompt":"q","max_tokens":1}`)
			if err != nil || resp.StatusCode != http.StatusOK {
				order <- fmt.Sprint(id, err)
				return
			}
			order <- id
			resp.Body.Close()
		}()
	}
	ask("second")
	b.waitStats("one waits", func(c counts) bool { return c.Running == 1 && c.Waiting == 1 })
	left, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		resp, err := b.trySend(left, "POST", "/v1/completions", `{"prompt":"q"}`)
		if err == nil {
			resp.Body.Close()
		}
		gone <- err
	}()
	b.waitStats("two wait", func(c counts) bool { return c.Waiting == 2 })
	ask("fourth")
	b.waitStats("three wait", func(c counts) bool { return c.Waiting == 3 })
	leave()
	if err := <-gone; err == nil {
		t.Error("a request cancelled in the queue was answered")
	}
	b.waitStats("the cancelled one left the queue", func(c counts) bool { return c.Waiting == 2 && c.Cancelled == 1 })
	cancel()
	if a, z := <-order, <-order; a != "second" || z != "fourth" {
		t.Errorf("served %s, %s", a, z)
	}
	b.waitStats("all over", func(c counts) bool { return c.Running == 0 && c.Waiting == 0 && c.Cancelled == 2 && c.Requests == 4 })
}

func TestLeastLoadedRankTakesARequestWithoutHeader(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.Ranks = 2; c.DecodePerToken = time.Millisecond })
	for range 2 {
		if _, err := b.stream(t.Context(), "/v1/completions", longStream).next(); err != nil {
			t.Fatal(err)
		}
	}
	if c := b.stats(); c.Ranks[0].Running != 1 || c.Ranks[1].Running != 1 {
		t.Errorf("running %d and %d, want 1 and 1", c.Ranks[0].Running, c.Ranks[1].Running)
	}
}

func TestClientThatLeavesFreesItsSlotAndIsCounted(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		config     func(*sim.Config)
	}{
		{"paced stream", longStream, func(c *sim.Config) { c.DecodePerToken = 5 * time.Millisecond }},
		{"stream as fast as it goes", longStream, nil},
		{"unary", `{"prompt":"long","max_tokens":100000,"ignore_eos":true}`, func(c *sim.Config) { c.DecodePerToken = 5 * time.Millisecond }},
		{"prefill", `{"prompt":[1,2,3],"max_tokens":1}`, func(c *sim.Config) { c.PrefillPerToken = time.Minute }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := startEngine(t, tc.config)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				resp, err := b.trySend(ctx, "POST", "/v1/completions", tc.body, "X-Request-Id", "r1")
				if err == nil {
					<-ctx.Done()
					resp.Body.Close()
				}
			}()
			b.waitStats("it runs", func(c counts) bool { return c.Running == 1 })
			left := time.Now()
			cancel()
			<-done
			c := b.waitStats("it was seen to leave", func(c counts) bool { return c.Running == 0 && c.Cancelled == 1 })
			if len(c.Cancellations) != 1 || c.Cancellations[0].ID != "cmpl-r1" {
				t.Fatalf("cancellations %+v", c.Cancellations)
			}
			took := time.Unix(0, c.Cancellations[0].AtUnixNano).Sub(left)
			t.Logf("seen after %s", took)
			if took > time.Second {
				t.Errorf("seen after %s", took)
			}
		})
	}
}

func TestD3_ConnectionsStayUsableAfterAbortedStreams(t *testing.T) {
	b := startEngine(t, nil)
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		s := b.stream(ctx, "/v1/completions", longStream)
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
		cancel()
		s.body.Close()
		v := b.ok("POST", "/v1/completions", fmt.Sprintf(`{"prompt":[%d],"max_tokens":1}`, i))
		if usageOf(v) != [3]int{1, 1, 0} {
			t.Fatalf("answer %d: %v", i, v)
		}
	}
	b.waitStats("all aborted streams were counted", func(c counts) bool { return c.Cancelled == 20 && c.Running == 0 })
}

func TestCloseCutsRunningStreams(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.DecodePerToken = time.Millisecond })
	s := b.stream(t.Context(), "/v1/completions", longStream)
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if list, err := s.rest(); err == nil {
		t.Errorf("the stream ended as if it were complete: %d events", len(list))
	}
}

func TestCloseDoesNotWaitForAClientThatDoesNotRead(t *testing.T) {
	b := startEngine(t, nil)
	s := b.stream(t.Context(), "/v1/completions", longStream)
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	b.waitStats("it runs", func(c counts) bool { return c.Running == 1 })
	start := time.Now()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("close took %s", took)
	}
}
