//go:build e2e

package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/routerd/routerd/host/wasmtest"
)

// Nobody serves: four reasons, four codes.
func TestE4_FourReasonsWhyNobodyServes(t *testing.T) {
	d := startDesk(t)
	r := startRouter(t, "workers:\n  static:\n  - {id: 2, name: w2, url: \"http://127.0.0.77:9\", model: m2, block_size: 16}\n"+
		"  health_check: {interval: 100ms, grace: 100ms}\n"+
		"models: {m1: {block_size: 16, tokenize: \"off\"}, m2: {tokenize: \"off\"}, m3: {block_size: 16, tokenize: \"off\"}}\n"+
		"queue: {overload: {prefill_tokens: 100}, classes: {default: {busy: {active_requests: 1}}}}\n")
	r.must("PUT", "/v1/workers/1", map[string]any{"id": 1, "name": "w1", "url": d.url, "model": "m1"}, nil)
	r.must("DELETE", "/v1/workers/1", nil, nil)
	r.must("PUT", "/v1/workers/3", map[string]any{"id": 3, "name": "w3", "url": d.url, "model": "m3"}, nil)
	r.becomes("w2", "ejected")
	c := newCrowd(t, r)
	running := c.sendTo(t, "/v1/completions", map[string]any{"model": "m3", "prompt": tokens(1, 160)})
	d.arrived(t, 1)
	codes := map[string]bool{}
	for _, want := range []struct {
		model, code string
		status      int
	}{
		{"nope", "model_not_found", http.StatusNotFound},
		{"m1", "no_workers", http.StatusServiceUnavailable},
		{"m2", "workers_ejected", http.StatusServiceUnavailable},
		{"m3", "overloaded", http.StatusTooManyRequests},
	} {
		a, err := c.ask(t.Context(), "/v1/completions", map[string]any{"model": want.model, "prompt": "hi"})
		if err != nil {
			t.Fatal(err)
		}
		param := ""
		if want.status == http.StatusNotFound {
			param = "model"
		}
		refused(t, want.model, a, want.status, want.code, param)
		codes[routerError(t, want.model, a).Code] = true
	}
	if len(codes) != 4 {
		t.Errorf("the codes are %v, want four", codes)
	}
	d.open()
	running.served(t)
	r.quiet("m3")
}

// onlyWorker2 checks an answer: w2 served, nobody else was a candidate, and who
// chose.
func onlyWorker2(t *testing.T, r *router, what string, a reply, by string) {
	t.Helper()
	if got := servedBy(t, a); got != "w2" {
		t.Errorf("%s was served by %s, want w2", what, got)
	}
	d := r.decision(a.header)
	if d.Pick.By != by {
		t.Errorf("%s was decided by %s, want %s", what, d.Pick.By, by)
	}
	if by != "session" && (len(d.Rows) != 1 || string(d.Rows[0].Worker) != "2") {
		t.Errorf("%s: the candidates were %+v, want w2 alone", what, d.Rows)
	}
}

// A worker that is taken out, because it refuses or cannot be reached, is no
// candidate of the policy that prefers it, of its fallback, of a random picker or
// of its session.
func TestM10_WorkerThatIsTakenOut(t *testing.T) {
	t.Run("it refuses", func(t *testing.T) {
		var refusing atomic.Bool
		w1 := startFake(t, func(c net.Conn, _ *seen) bool {
			if refusing.Load() {
				say(c, whole(http.StatusServiceUnavailable, "Retry-After: 30\r\n", `{"error":{"message":"full"}}`))
			} else {
				say(c, whole(http.StatusOK, "", completion))
			}
			return true
		})
		d := openDesk(t)
		r := startRouter(t, untold+fmt.Sprintf("  - {id: 1, name: w1, url: %q, model: m}\n", w1.url)+desks(2, "m", d)+"plugins:\n"+unhurried)
		r.prefersLowest()
		c := newCrowd(t, r)
		if got := c.served(t, "hello", session, "s"); got != "w1" {
			t.Fatalf("the first request was served by %s, want w1", got)
		}
		refusing.Store(true)
		if got := c.served(t, "hello", session, "s"); got != "w2" {
			t.Errorf("after a refusal the session's request was served by %s, want w2", got)
		}
		refusing.Store(false)
		before := len(w1.all())
		nobodyChoosesWorker1(t, r, c)
		if got := len(w1.all()) - before; got != 0 {
			t.Errorf("%d requests came to the worker that is taken out, want none", got)
		}
	})
	t.Run("it cannot be reached", func(t *testing.T) {
		t.Parallel() // it waits for inhibitions that double
		dead := "  - {id: 1, name: w1, url: \"http://127.0.0.77:9\", model: m, no_health_check: true}\n"
		r := startRouter(t, untold+dead+desks(2, "m", openDesk(t))+"plugins:\n"+unhurried)
		r.prefersLowest()
		c := newCrowd(t, r)
		eventually(t, 3*soon, func() error { // then it is left out for 4 s
			c.served(t, "hello", session, "s")
			c.served(t, "hello")
			if got := sum(r.metrics(), "routerd_frontend_retries_total"); got < 3 {
				return fmt.Errorf("%v attempts were made again, want 3", got)
			}
			return nil
		})
		if reasons := fmt.Sprint(r.reasons("w1")); !strings.Contains(reasons, "inhibited") {
			t.Errorf("the reasons of w1 are %s, want that it is inhibited", reasons)
		}
		nobodyChoosesWorker1(t, r, c)
		a, err := c.complete(t.Context(), "hello", "x-routerd-pin", "w1")
		if err != nil {
			t.Fatal(err)
		}
		refused(t, "a pin on the worker", a, http.StatusServiceUnavailable, "worker_unreachable", "")
	})
}

// reasons tell why a worker of model m is not as it should be.
func (r *router) reasons(name string) []string {
	r.t.Helper()
	var got struct {
		Partitions []struct {
			Ranks []struct {
				Name    string   `json:"name"`
				Reasons []string `json:"reasons"`
			} `json:"ranks"`
		} `json:"partitions"`
	}
	r.must("GET", "/v1/partitions?model=m", nil, &got)
	for _, v := range got.Partitions[0].Ranks {
		if v.Name == name {
			return v.Reasons
		}
	}
	return nil
}

func nobodyChoosesWorker1(t *testing.T, r *router, c *crowd) {
	t.Helper()
	ask := func(max int, header ...string) reply {
		a, err := c.ask(t.Context(), "/v1/completions", map[string]any{"model": "m", "prompt": "hello", "max_tokens": max}, header...)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	onlyWorker2(t, r, "a request of the policy that prefers w1", ask(2), "policy")
	onlyWorker2(t, r, "the session", ask(2, session, "s"), "session")

	r.activate(r.revise("armed", armed(wasmtest.Guest{Name: "armed"}, wasmtest.Op(wasmtest.Unreachable)).Bytes()))
	onlyWorker2(t, r, "a request of the fallback", ask(armedAt), "fallback")

	var made struct {
		Revision int `json:"revision"`
	}
	r.must("PUT", "/v1/policies/default", map[string]any{
		"scorers": []map[string]any{{"use": "module:lowest"}},
		"picker":  map[string]any{"use": "builtin:softmax", "config": map[string]any{"temperature": 1000}},
	}, &made)
	r.activate(made.Revision)
	for range 10 {
		onlyWorker2(t, r, "a request by chance", ask(2), "policy")
	}
}
