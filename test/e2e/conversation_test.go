//go:build e2e

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// 49 completions of 16 sessions, unary, streamed and unary again; then a stream
// that is cancelled and its session's next request.
func TestConversationsStayWithTheirWorkers(t *testing.T) {
	const sessions, completions = 16, 49
	var static strings.Builder
	var engines []*sim.Engine
	for i := range 4 {
		name := fmt.Sprint("w", i+1)
		e := simtest.Start(t, func(c *sim.Config) {
			c.Name, c.Model, c.AnswerTokens, c.DecodePerToken = name, "m", 8, 2*time.Millisecond
		})
		engines = append(engines, e)
		static.WriteString(worker(i+1, name, "m", e))
	}
	r := startRouter(t, "models: {m: {block_size: 16}}\nworkers:\n  static:\n"+static.String())
	c := newCrowd(t, r)
	var mu sync.Mutex
	home := map[string]map[string]int{}
	turn := func(i int, stream bool) {
		name := fmt.Sprint("s", i%sessions)
		body := map[string]any{"model": "m", "prompt": fmt.Sprintf("%s says %d", name, i), "max_tokens": 8, "stream": stream}
		a, err := c.ask(t.Context(), "/v1/completions", body, session, name)
		if err != nil || a.status != http.StatusOK {
			t.Errorf("completion %d: status %d %v: %s", i, a.status, err, a.body)
			return
		}
		if stream && !bytes.HasSuffix(bytes.TrimSpace(a.body), []byte("data: [DONE]")) {
			t.Errorf("completion %d: the stream ends with %.100q", i, a.body)
		}
		mu.Lock()
		defer mu.Unlock()
		if home[name] == nil {
			home[name] = map[string]int{}
		}
		home[name][a.header.Get("x-routerd-worker")]++
	}
	together(sessions, func(i int) { turn(i, false) })
	together(sessions, func(i int) { turn(sessions+i, true) })
	together(completions-2*sessions, func(i int) { turn(2*sessions+i, false) })
	used := map[string]bool{}
	total := 0
	for name, workers := range home {
		if len(workers) != 1 {
			t.Errorf("session %s was served by %v, want one worker", name, workers)
		}
		for w, n := range workers {
			used[w] = true
			total += n
		}
	}
	if total != completions || len(home) != sessions || len(used) < 2 {
		t.Errorf("%d completions of %d sessions at %d workers, want %d of %d at several", total, len(home), len(used), completions, sessions)
	}
	r.bound("m", sessions, soon)
	r.quiet("m")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := c.begin(ctx, "/v1/completions", map[string]any{"model": "m", "prompt": "tell me all", "max_tokens": 100000, "ignore_eos": true, "stream": true}, session, "s3")
	if err != nil {
		t.Fatal(err)
	}
	events := bufio.NewScanner(resp.Body)
	for n := 0; n < 2 && events.Scan(); {
		if strings.HasPrefix(events.Text(), "data: ") {
			n++
		}
	}
	cancel()
	_ = resp.Body.Close()
	turn(3, false)
	if len(home["s3"]) != 1 {
		t.Errorf("after the cancelled stream session s3 was served by %v, want one worker", home["s3"])
	}
	r.quiet("m")
	eventually(t, soon, func() error {
		cancelled := 0
		for _, e := range engines {
			var stats struct {
				Cancelled int `json:"cancelled"`
			}
			engineJSON(t, e, "GET", "/sim/stats", nil, &stats)
			cancelled += stats.Cancelled
		}
		if cancelled != 1 {
			return fmt.Errorf("the engines saw %d requests cancelled, want 1", cancelled)
		}
		return nil
	})
	if m := r.metrics(); sum(m, "routerd_frontend_worker_failures_total") != 0 {
		t.Errorf("%v failures of workers, want none", sum(m, "routerd_frontend_worker_failures_total"))
	}
}

// A session's binding is not the policy's: it stays through a swap and a reload.
func TestSessionSurvivesASwapAndAReload(t *testing.T) {
	config := three(t)
	r := startRouter(t, config)
	r.prefersLowest()
	c := newCrowd(t, r)
	where := func(what, want, by string, header ...string) {
		t.Helper()
		a, err := c.complete(t.Context(), "hello", header...)
		if err != nil {
			t.Fatal(err)
		}
		if got := servedBy(t, a); got != want || r.chosenBy(a) != by {
			t.Errorf("%s: served by %s, chosen by %s; want %s by %s", what, got, r.chosenBy(a), want, by)
		}
	}
	where("the first request", lowest, "policy", session, "s")
	r.activate(r.revise("highest", byID("highest", true)))
	where("another after the swap", highest, "policy")
	where("the session after the swap", lowest, "session", session, "s")
	r.rewrite(config + "queue: {refresh_after: 3s, classes: {bulk: {weight: 2}}}\n")
	r.must("POST", "/v1/config/reload", nil, nil)
	where("the session after the reload", lowest, "session", session, "s")
	where("the session in a class of its own", lowest, "session", session, "s", "x-routerd-class", "bulk")
	r.rewrite(config + "affinity: {mode: soft}\n")
	r.must("POST", "/v1/config/reload", nil, nil)
	where("the session with soft affinity", highest, "policy", session, "s")
	r.rewrite(config)
	r.must("POST", "/v1/config/reload", nil, nil)
	where("the session with hard affinity again", highest, "session", session, "s")
	r.quiet("m")
}

// The demo, which make run starts, keeps a session where it was.
func TestDemoKeepsASession(t *testing.T) {
	frontend, admin := freeAddress(t), freeAddress(t)
	startDemo(t, fmt.Sprintf("exec %s demo --frontend.listen %s --admin.listen %s", mustEnv(t, "ROUTERD_BIN"), frontend, admin))
	seen := map[string]int{}
	for i := range 10 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+frontend+"/v1/completions",
			strings.NewReader(fmt.Sprintf(`{"model":"demo","prompt":"part %d of a story","max_tokens":4}`, i)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(session, "story")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("status %d %v: %s", resp.StatusCode, err, answer)
		}
		seen[resp.Header.Get("x-routerd-worker")]++
	}
	if len(seen) != 1 {
		t.Errorf("the session's requests went to %v, want one worker", seen)
	}
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}
