//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// removal is a way in which a worker is taken out: by whom, and how that is told.
type removal struct {
	name              string
	config            string // on top of quickHealth
	take              func(t *testing.T, r *router, c *crowd, e *sim.Engine)
	lifecycle, reason string // the reason's first word; empty for none
}

// quickHealth ejects quickly by probes, and for longer than a test lasts by what becomes
// of requests. It ends the part of workers.
const quickHealth = "  health_check: {interval: 100ms, timeout: 1s, slow_start: 0s, base_ejection: 1m, passive: {failures: %d}}\n" +
	"frontend: {breaker: {failures: %d, cooldown: 1m}}\n"

// byHealth are the ways in which health ejects a worker.
var byHealth = []removal{
	{"its probes fail", fmt.Sprintf(quickHealth, 5, 5), func(t *testing.T, _ *router, _ *crowd, e *sim.Engine) {
		engineJSON(t, e, "POST", "/sim/faults", map[string]any{"kind": "status", "status": 500, "path": "/health", "count": 1000}, nil)
	}, "ejected", "health_status"},
	{"its requests fail", fmt.Sprintf(quickHealth, 3, 100), failsRequests, "ejected", "outlier"},
	{"its breaker opens", fmt.Sprintf(quickHealth, 0, 3), failsRequests, "ejected", "breaker_open"},
}

// failsRequests has three requests to worker w1 in a row end without an answer.
func failsRequests(t *testing.T, _ *router, c *crowd, e *sim.Engine) {
	t.Helper()
	engineJSON(t, e, "POST", "/sim/faults", map[string]any{"kind": "reset", "count": 1000}, nil)
	for range 3 {
		a, err := c.complete(t.Context(), "hello", "x-routerd-pin", "w1")
		if err != nil {
			t.Fatal(err)
		}
		refused(t, "a request whose connection breaks", a, http.StatusBadGateway, "worker_failed", "")
	}
}

// taken takes worker w1 out and waits until it is.
func (c removal) taken(t *testing.T, r *router, clients *crowd, e *sim.Engine) {
	t.Helper()
	c.take(t, r, clients, e)
	eventually(t, soon, func() error {
		v := r.becomes("w1", c.lifecycle)
		if c.reason != "" && !slices.ContainsFunc(v.Reasons, func(reason string) bool { return strings.HasPrefix(reason, c.reason) }) {
			return fmt.Errorf("w1 is %s: %q, want %s", v.Lifecycle, v.Reasons, c.reason)
		}
		return nil
	})
}

// drains has worker w1 drain.
func drains(timeout string) func(*testing.T, *router, *crowd, *sim.Engine) {
	return func(_ *testing.T, r *router, _ *crowd, _ *sim.Engine) {
		r.must("POST", "/v1/workers/w1/drain", map[string]string{"timeout": timeout}, nil)
	}
}

// heldAnswer is a streamed answer that has begun, by worker w1, of so many tokens.
func heldAnswer(t *testing.T, c *crowd, tokens int) io.ReadCloser {
	t.Helper()
	resp, err := c.begin(context.Background(), "/v1/completions",
		map[string]any{"model": "m", "prompt": "hello", "max_tokens": tokens, "stream": true}, "x-routerd-pin", "w1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if by := resp.Header.Get("x-routerd-worker"); resp.StatusCode != http.StatusOK || by != "w1" {
		t.Fatalf("status %d from %q, want 200 from w1", resp.StatusCode, by)
	}
	return resp.Body
}

// What a worker is at work on goes on to its end when it is taken out, whoever does that.
func TestM8_StreamsOfAWorkerThatIsTakenOutEndWhole(t *testing.T) {
	const streams, length = 3, 8
	for _, c := range append([]removal{
		{"it drains", fmt.Sprintf(quickHealth, 5, 5), drains("10m"), "draining", ""},
		{"its time to drain is over", fmt.Sprintf(quickHealth, 5, 5), drains("0s"), "draining", "drain_over"},
	}, byHealth...) {
		t.Run(c.name, func(t *testing.T) {
			engine := func(c *sim.Config) { c.Model = "m" }
			w1, w2 := simtest.Start(t, engine), simtest.Start(t, engine)
			r := startRouter(t, untold+worker(1, "w1", "m", w1)+worker(2, "w2", "m", w2)+c.config)
			r.becomes("w1", "ready")
			clients := newCrowd(t, r)
			engineJSON(t, w1, "POST", "/sim/faults", map[string]any{"kind": "stall", "after_chunks": 1, "count": streams}, nil)
			var held []io.ReadCloser
			for range streams {
				held = append(held, heldAnswer(t, clients, length))
			}
			c.taken(t, r, clients, w1)
			for range 10 {
				if by := clients.served(t, "hello"); by != "w2" {
					t.Fatalf("a new request was served by %s, want w2", by)
				}
			}

			engineJSON(t, w1, "DELETE", "/sim/faults", nil, nil)
			for _, stream := range held {
				got, err := io.ReadAll(stream)
				if err != nil {
					t.Errorf("a stream was cut: %v after %q", err, got)
				}
				if n := bytes.Count(got, []byte(`"text":`)); n != length || !bytes.HasSuffix(got, []byte("data: [DONE]\n\n")) {
					t.Errorf("a stream has %d of %d tokens and ends with %.80q", n, length, got[max(0, len(got)-80):])
				}
			}
			r.quiet("m")
			if c.reason == "health_status" { // it answers its probes again
				r.becomes("w1", "ready")
			}
		})
	}
}

// A worker that health has ejected is no candidate of the policy that prefers it, of its
// fallback, of a random picker or of its session, and a pin on it is refused.
func TestM10_WorkerThatHealthEjects(t *testing.T) {
	for _, c := range byHealth {
		t.Run(c.name, func(t *testing.T) {
			w1 := simtest.Start(t, func(c *sim.Config) { c.Model = "m" })
			r := startRouter(t, untold+worker(1, "w1", "m", w1)+desks(2, "m", openDesk(t))+c.config+"plugins:\n"+unhurried)
			r.becomes("w1", "ready")
			r.becomes("w2", "ready")
			r.prefersLowest()
			clients := newCrowd(t, r)
			if got := clients.served(t, "hello", session, "s"); got != "w1" {
				t.Fatalf("the first request was served by %s, want w1", got)
			}
			c.taken(t, r, clients, w1)
			before := engineServed(t, w1)
			if got := clients.served(t, "hello", session, "s"); got != "w2" {
				t.Errorf("the session's request was served by %s, want w2", got)
			}
			nobodyChoosesWorker1(t, r, clients)
			for header, param := range map[string]string{"x-routerd-pin": "pin", "x-routerd-allow": ""} {
				a, err := clients.complete(t.Context(), "hello", header, "w1")
				if err != nil {
					t.Fatal(err)
				}
				refused(t, header+" names the worker", a, http.StatusServiceUnavailable, "workers_ejected", param)
			}
			if got := engineServed(t, w1) - before; got != 0 {
				t.Errorf("%d requests came to the ejected worker, want none", got)
			}
		})
	}
}
