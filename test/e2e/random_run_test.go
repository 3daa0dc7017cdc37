//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

const (
	manyWorkers  = 16
	manySessions = 64
	manyClients  = 48
)

// busyConfig lets requests wait, refuse, expire and share adapters all the time.
// The last part has several forms, for reloads.
const busyConfig = `models: {m: {block_size: 16}}
frontend: {first_byte_timeout: 10s}
lora: {slots: 2, manage: [{name: a1, model: m, path: /a1}, {name: a2, model: m, path: /a2}, {name: a3, model: m, path: /a3}]}
queue:
  refresh_after: 50ms
  overload: {prefill_tokens: 400}
  classes:
    default: {busy: {active_requests: 2}, limits: {requests: 1}, timeout: 300ms}
    chat: {weight: 4, order: wspt, busy: {active_requests: 2}, limits: {requests: 2}, timeout: 1s}
`

// busyForms end busyConfig.
var busyForms = [...]string{
	`    batch: {busy: {prefill_tokens: 60}, limits: {requests: 1, tokens: 100}, timeout: 100ms}
affinity: {ttl: 2s, entries: 40}
`,
	`    batch: {weight: 2, busy: {active_requests: 1}, limits: {requests: 0}, timeout: 100ms}
affinity: {ttl: 2s, entries: 40, mode: soft}
routing: {seed: 5}
`,
	`affinity: {ttl: 2s, entries: 40}
shared_cache: {url: "http://127.0.0.77:99"}
`,
}

// busyPolicies decide in turn.
var busyPolicies = [...]string{
	`{"scorers":[{"use":"builtin:kv-aware"}],"lora":[{"use":"builtin:lora-affinity","weight":10}],"picker":{"use":"builtin:softmax","config":{"temperature":0.5}}}`,
	`{"policy":{"use":"builtin:two-tier"}}`,
	`{"policy":{"use":"builtin:sticky"}}`,
	`{"policy":{"use":"builtin:consistent-hash-bounded-load"}}`,
	`{"scorers":[{"use":"builtin:backlog-tokens"}],"picker":{"use":"builtin:two-choices"}}`,
}

// busyFleet is a router with many engines that things happen to.
type busyFleet struct {
	t       *testing.T
	r       *router
	c       *crowd
	engines []*sim.Engine

	mu       sync.Mutex // guards outcomes
	outcomes map[string]int
}

func startBusyFleet(t *testing.T) *busyFleet {
	t.Helper()
	f := &busyFleet{t: t, outcomes: map[string]int{}}
	for i := range manyWorkers {
		f.engines = append(f.engines, simtest.Start(t, func(c *sim.Config) {
			c.Name, c.Model, c.AnswerTokens, c.DecodePerToken = fmt.Sprint("w", i+1), "m", 16, 2*time.Millisecond
			c.PrefillPerToken, c.AdapterUpdates, c.AdapterLoad = 20*time.Microsecond, true, 20*time.Millisecond
		}))
	}
	f.r = startRouter(t, busyConfig+busyForms[0]+"plugins:\n"+unhurried)
	f.c = newCrowd(t, f.r)
	for i, e := range f.engines {
		f.put(i, e.URL())
	}
	eventually(t, 3*soon, func() error {
		if got := f.r.adapters("loaded"); got < 3 {
			return fmt.Errorf("%v adapters are loaded, want 3", got)
		}
		return nil
	})
	return f
}

// put registers engine i as worker w(i+1) at an address.
func (f *busyFleet) put(i int, url string) {
	f.r.t.Helper()
	e := f.engines[i]
	f.r.must("PUT", fmt.Sprint("/v1/workers/", i+1), map[string]any{
		"id": i + 1, "name": fmt.Sprint("w", i+1), "url": url, "model": "m", "engine": "vllm", "max_batched_tokens": 8192,
		"no_health_check": url != e.URL(), // so that requests go there
		"kv_events":       map[string]string{"0": e.EventEndpoints()[0]}, "replay": map[string]string{"0": e.ReplayEndpoints()[0]},
	}, nil)
}

// documented are the refusals that a client may see here: status, code and param
// of the router's errors, and what the engines answer.
var documented = []string{
	"429 overloaded", "429 overloaded queue_full", "429 overloaded queue_timeout", "429 overloaded pin_overloaded",
	"503 no_workers", "503 no_workers allow", "503 worker_unreachable", "503 worker_failed", "502 worker_failed",
	"400 pin_unknown pin", "400 session_bound pin", "400 session_bound allow", "429 engine_full", "503 engine_full",
}

// count takes an outcome in.
func (f *busyFleet) count(outcome string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outcomes[outcome]++
}

// resting is what a router has while nothing is under way.
func (f *busyFleet) resting() (goroutines, descriptors float64) {
	m := f.r.metrics()
	return m["go_goroutines"], m["process_open_fds"] - sum(m, "routerd_upstream_connections")
}

// Everything that can happen to requests happens at random: what clients see is
// documented, and nothing is left.
func TestEverythingAtRandomLeavesNothing(t *testing.T) {
	f := startBusyFleet(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	goroutines, descriptors := f.resting()
	f.run(seed)
	f.restore()
	f.r.quiet("m")
	f.c.client.CloseIdleConnections()
	f.verdict()
	f.r.bound("m", 0, soon)
	f.settled(func() error {
		g, d := f.resting()
		if g > goroutines+10 || d > descriptors+10 {
			return fmt.Errorf("%v goroutines and %v descriptors, want %v and %v as before, 10 more at most", g, d, goroutines, descriptors)
		}
		return nil
	})
	g, d := f.resting()
	t.Logf("goroutines %v before and %v after, descriptors %v and %v", goroutines, g, descriptors, d)
	for line := range strings.Lines(f.r.log.String()) {
		if strings.Contains(line, "panic") || strings.Contains(line, "level=ERROR") {
			t.Errorf("the log says %s", line)
		}
	}
}

// settled waits until connections that nobody uses are gone, and then for check.
func (f *busyFleet) settled(check func() error) {
	f.t.Helper()
	eventually(f.t, time.Minute, func() error {
		m := f.r.metrics()
		if open, idle := sum(m, "routerd_upstream_connections"), sum(m, "routerd_upstream_idle_connections"); open != idle {
			return fmt.Errorf("%v connections to workers, %v of them idle", open, idle)
		}
		return check()
	})
}

// verdict checks all outcomes of a run.
func (f *busyFleet) verdict() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	total := 0
	for _, outcome := range slices.Sorted(maps.Keys(f.outcomes)) {
		n := f.outcomes[outcome]
		total += n
		f.t.Logf("%6d %s", n, outcome)
		if outcome != "served" && outcome != "cancelled" && !slices.Contains(documented, outcome) {
			f.t.Errorf("%d requests ended with %s, which is not documented", n, outcome)
		}
	}
	if served := f.outcomes["served"]; served < total/4 {
		f.t.Errorf("%d of %d requests were served, want a good part", served, total)
	}
	for _, must := range []string{"cancelled", "429 overloaded queue_full", "429 overloaded queue_timeout", "429 engine_full", "503 worker_unreachable"} {
		if f.outcomes[must] == 0 {
			f.t.Errorf("no request ended with %s: the run shows too little", must)
		}
	}
}

// run has the clients ask for a while; meanwhile things happen.
func (f *busyFleet) run(seed uint64) {
	ctx, cancel := context.WithTimeout(f.t.Context(), randomRun)
	defer cancel()
	var wg sync.WaitGroup
	for i := range manyClients {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for ctx.Err() == nil {
				outcome := f.request(rnd)
				f.count(outcome)
				if outcome != "served" { // it comes again a little later
					<-time.After(time.Duration(rnd.IntN(100)) * time.Millisecond)
				}
			}
		})
	}
	rnd := rand.New(rand.NewPCG(seed, manyClients))
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		f.disturb(rnd)
		<-tick.C
	}
	wg.Wait()
}
