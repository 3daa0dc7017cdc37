//go:build e2e

package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// rewrite replaces the router's configuration file.
func (r *router) rewrite(yaml string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(r.dataDir), "routerd.yaml"), []byte(yaml), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// reloads counts the reloads that ended with a result.
func (r *router) reloads(result string) float64 {
	r.t.Helper()
	return sum(r.metrics(), "routerd_config_reloads_total", `"`+result+`"`)
}

// hangup sends SIGHUP and waits until a reload has ended with the result.
func (r *router) hangup(result string) {
	r.t.Helper()
	before := r.reloads(result)
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, 10*time.Second, func() error {
		if r.reloads(result) == before {
			return fmt.Errorf("no reload is %s", result)
		}
		return nil
	})
}

// publisher is the address of an event publisher that says nothing; it knows who
// listens.
type publisher struct {
	addr string
	open atomic.Int64
	ever atomic.Int64
}

func startPublisher(t *testing.T) *publisher {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &publisher{addr: "tcp://" + ln.Addr().String()}
	var live sync.WaitGroup
	live.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			p.open.Add(1)
			p.ever.Add(1)
			live.Go(func() {
				defer p.open.Add(-1)
				defer func() { _ = c.Close() }()
				for buf := make([]byte, 64); ; {
					if _, err := c.Read(buf); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close() })
	return p
}

// gone waits until nobody listens.
func (p *publisher) gone(t *testing.T, within time.Duration) {
	t.Helper()
	eventually(t, within, func() error {
		if n := p.open.Load(); n != 0 {
			return fmt.Errorf("%d listeners", n)
		}
		return nil
	})
}

// O6: how soon nothing goes to removed workers any more, and for how long that
// is watched.
const (
	leaveWithin = 2 * time.Second
	leaveWatch  = 2 * time.Second
)

func TestO6_WorkersThatLeaveTheFile(t *testing.T) {
	const header = "models: {m: {block_size: 16, tokenize: \"off\"}}\nworkers:\n  static:\n"
	var engines [3]*fake
	var events [3]*publisher
	var lines [3]string
	for i := range engines {
		engines[i] = startFake(t, func(c net.Conn, _ *seen) bool {
			say(c, whole(http.StatusOK, "", completion))
			return true
		})
		events[i] = startPublisher(t)
		lines[i] = fmt.Sprintf("  - {id: %d, name: w%d, url: %q, model: m, kv_events: {\"0\": %q}}\n", i+1, i+1, engines[i].url, events[i].addr)
	}
	r := startRouter(t, header+lines[0]+lines[1])
	var failed atomic.Int64
	stop, traffic := make(chan struct{}), sync.WaitGroup{}
	for range 4 {
		traffic.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := http.Post(r.frontend+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"x","max_tokens":1}`))
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Logf("failed: %v, %+v", err, resp)
					failed.Add(1)
				}
				if err == nil {
					_ = resp.Body.Close()
				}
			}
		})
	}
	served := func(i int) {
		t.Helper()
		before := len(engines[i].all())
		eventually(t, 10*time.Second, func() error {
			if len(engines[i].all()) == before || events[i].open.Load() == 0 {
				return fmt.Errorf("w%d has %d new requests and %d listeners", i+1, len(engines[i].all())-before, events[i].open.Load())
			}
			return nil
		})
	}
	left := func(i int) {
		t.Helper()
		events[i].gone(t, leaveWithin*patience)
		requests, listeners := len(engines[i].all()), events[i].ever.Load()
		<-time.After(leaveWatch)
		if n, l := len(engines[i].all())-requests, events[i].ever.Load()-listeners; n != 0 || l != 0 {
			t.Errorf("%d requests and %d listeners went to w%d after it had left", n, l, i+1)
		}
	}
	served(0)
	served(1)

	r.rewrite(header + lines[1] + lines[2])
	r.hangup("ok")
	left(0)
	served(1)
	served(2)

	r.rewrite(header + lines[0])
	var answer struct{ Changed []string }
	r.must(http.MethodPost, "/v1/config/reload", nil, &answer)
	if len(answer.Changed) != 1 || answer.Changed[0] != "workers.static" {
		t.Errorf("changed %v", answer.Changed)
	}
	left(1)
	left(2)
	served(0)

	r.rewrite(header + lines[0] + lines[1])
	if code, out, said := r.cli("config", "reload"); code != 0 || !strings.Contains(out, "workers.static") {
		t.Errorf("exit code %d: %s%s", code, out, said)
	}
	served(1)
	if code, out, said := r.cli("config", "reload"); code != 0 || !strings.Contains(out, "nothing has changed") {
		t.Errorf("exit code %d: %s%s", code, out, said)
	}
	close(stop)
	traffic.Wait()
	if n := failed.Load(); n != 0 {
		t.Errorf("%d requests failed", n)
	}
}

func TestO7_ReloadsThatAreRefused(t *testing.T) {
	workers := three(t)
	r := startRouter(t, workers+"frontend: {max_body: 1MiB}\n")
	const small = "frontend: {max_body: 1KiB}\n"
	// unchanged shows that nothing of the new file is in force.
	unchanged := func(name string) {
		t.Helper()
		status, _, answer := r.ask("/v1/completions", map[string]any{"model": "m", "prompt": strings.Repeat("word ", 1000), "max_tokens": 1})
		if status != http.StatusOK {
			t.Errorf("%s: a long request got %d %s", name, status, answer)
		}
		if got := len(r.partition("m").Ranks); got != 3 {
			t.Errorf("%s: %d workers", name, got)
		}
	}
	refused := 0.0
	for _, c := range []struct {
		name, yaml       string
		step, item, says string
	}{
		{"an unknown key", small + "routing: {defualt: x}\n", "check", "routing.defualt", "routerd.yaml:2:11: routing.defualt: unknown key; the nearest known one is routing.default"},
		{"no YAML", small + "workers: [\n", "read", "YAML", "routerd.yaml: YAML"},
		{"an unknown module", small + "policies: {fast: {scorers: [{use: 'module:nowhere'}]}}\n", "prepare", "policies.fast", "nowhere"},
		{"a value out of range", small + "plugins: {fuel_cap: 1}\n", "check", "plugins.fuel_cap", "10000 to 1000000000"},
	} {
		r.rewrite(c.yaml)
		e := r.refusal(http.MethodPost, "/v1/config/reload", nil)
		if e.Code != "invalid" || e.Details.Step != c.step || e.Details.Item != c.item || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: got %+v", c.name, e)
		}
		unchanged(c.name)
		code, out, said := r.cli("config", "reload")
		if code != 1 || !strings.Contains(said, c.says) || strings.Count(strings.TrimSpace(said), "\n") != 0 {
			t.Errorf("%s: exit code %d, %s%s", c.name, code, out, said)
		}
		r.hangup("refused")
		unchanged(c.name)
		if refused += 3; r.reloads("refused") != refused {
			t.Errorf("%s: counted %v refused reloads, want %v", c.name, r.reloads("refused"), refused)
		}
		if n := strings.Count(r.log.String(), "the old one stays in force"); n != int(refused) {
			t.Errorf("%s: %d lines of refused reloads, want %v", c.name, n, refused)
		}
	}
	r.rewrite(workers + small)
	r.hangup("ok")
	if status, _, _ := r.ask("/v1/completions", map[string]any{"model": "m", "prompt": strings.Repeat("word ", 1000)}); status != http.StatusRequestEntityTooLarge {
		t.Errorf("the next good reload is not in force: a long request got %d", status)
	}
}
