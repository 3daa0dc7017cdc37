//go:build e2e

package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// tokens is a prompt of n token ids that begin with first.
func tokens(first, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = first + i
	}
	return out
}

// blocksOf waits until the router believes that a worker holds n blocks.
func blocksOf(r *router, name string, n int, within time.Duration) {
	r.t.Helper()
	eventually(r.t, within, func() error {
		if got := len(r.rank("m", name).KV.Hashes["device"]); got != n {
			return fmt.Errorf("%s has %d blocks, want %d", name, got, n)
		}
		return nil
	})
}

// fill has an engine cache n tokens that begin with first, through the router.
func (r *router) fill(first, n int) http.Header {
	r.t.Helper()
	status, head, answer := r.ask("/v1/completions", map[string]any{"model": "m", "prompt": tokens(first, n), "max_tokens": 1})
	if status != http.StatusOK {
		r.t.Fatalf("status %d: %s", status, answer)
	}
	return head
}

// stored has an engine without replay hold nothing but n tokens that begin with
// first, until the router has heard of it: what is published before the router
// has subscribed is lost.
func stored(t *testing.T, r *router, e *sim.Engine, first, n int) {
	t.Helper()
	for range 20 {
		engineJSON(t, e, "POST", "/sim/faults", map[string]any{"kind": "reset_prefix_cache"}, nil)
		r.fill(first, n)
		for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
			if len(r.rank("m", "w1").KV.Hashes["device"]) == n/16 {
				return
			}
		}
	}
	t.Fatalf("the router did not hear of %d blocks", n/16)
}

func TestM3_SoleWorkerIsDeletedAndRejoins(t *testing.T) {
	e := simtest.Start(t, func(c *sim.Config) { c.Model, c.ReplayListen = "m", "" })
	w1 := map[string]any{"id": 1, "name": "w1", "url": e.URL(), "model": "m", "kv_events": map[string]string{"0": e.EventEndpoints()[0]}}
	r := startRouter(t, "models: {m: {block_size: 16}}\n")
	r.must("PUT", "/v1/workers/1", w1, nil)
	stored(t, r, e, 1000, 160)
	engineJSON(t, e, "POST", "/sim/faults", map[string]any{"kind": "stall", "after_chunks": 1, "count": 2}, nil)
	var streams []io.Reader
	for range 2 {
		streams = append(streams, r.openStream())
	}
	eventually(t, 5*time.Second, func() error {
		if got := r.rank("m", "w1").Load.Active; got != 2 {
			return fmt.Errorf("%d active requests, want 2", got)
		}
		return nil
	})

	r.must("DELETE", "/v1/workers/1", nil, nil)
	got := r.post("/v1/completions", hi)
	routerError(t, "no worker", got)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("status %d with Retry-After %q while there is no worker, want 503 with one: %s", got.status, got.header.Get("Retry-After"), got.body)
	}

	r.must("PUT", "/v1/workers/1", w1, nil)
	if got := r.rank("m", "w1"); got.Load.Active+got.Load.Prefill+got.Load.Decode+len(got.KV.Hashes["device"]) != 0 {
		t.Errorf("after it rejoined: %+v, want no load and no blocks", got)
	}
	stored(t, r, e, 9000, 64)
	head := r.fill(9000, 80)
	d := r.decision(head)
	if len(d.Rows) != 1 || d.Rows[0].Columns["kv.overlap_device"] != 4 {
		t.Errorf("decided from %+v, want an overlap of 4", d.Rows)
	}

	engineJSON(t, e, "DELETE", "/sim/faults", nil, nil)
	for _, s := range streams {
		if _, err := io.Copy(io.Discard, s); err != nil {
			t.Errorf("a stream that was there before: %v", err)
		}
	}
	r.idle("m", 5*time.Second)
}

// A worker whose id is taken is refused, and what is there stays.
func TestM5_WorkerWithAnIDThatIsTaken(t *testing.T) {
	r := startRouter(t, three(t))
	e := r.refusal("PUT", "/v1/workers/1", []byte(`{"id":1,"name":"other","url":"http://127.0.0.1:18009","model":"m"}`))
	if e.Code != "conflict" {
		t.Errorf("got %+v, want a conflict", e)
	}
	if got := len(r.partition("m").Ranks); got != 3 {
		t.Errorf("%d ranks, want 3", got)
	}
	if status, _, answer := r.complete(2); status != http.StatusOK {
		t.Errorf("status %d: %s", status, answer)
	}
}

func TestZ3_PublisherIsGoneForAWhile(t *testing.T) {
	config := sim.DefaultConfig()
	config.Name, config.Model = "w1", "m"
	first := simtest.Start(t, func(c *sim.Config) { *c = config })
	config.Listen = strings.TrimPrefix(first.URL(), "http://")
	config.EventsListen, config.ReplayListen = first.EventEndpoints()[0], first.ReplayEndpoints()[0]
	r := startRouter(t, "workers:\n  static:\n"+worker(1, "w1", "m", first))
	r.fill(1000, 160)
	blocksOf(r, "w1", 10, 10*time.Second)

	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	<-time.After(outage)
	second := simtest.Start(t, func(c *sim.Config) { *c = config })
	began := time.Now()
	r.fill(5000, 160) // the router may not have connected again yet
	sameAsEngine(t, r, "m", "w1", second)
	took := time.Since(began)
	t.Logf("the index was the new engine's %s after its start (stated: 6 s)", took)
	if took > 6*time.Second*patience {
		t.Errorf("it took %s, want at most 6 s (asserted at %d times)", took, patience)
	}
	r.fill(7000, 32)
	sameAsEngine(t, r, "m", "w1", second)
}
