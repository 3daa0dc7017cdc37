//go:build e2e

package e2e_test

import (
	"fmt"
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
}

func startBusyFleet(t *testing.T) *busyFleet {
	t.Helper()
	f := &busyFleet{t: t}
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
	"503 no_workers", "503 no_workers allow", "503 no_workers pin", "503 worker_unreachable", "503 worker_failed", "502 worker_failed",
	"400 pin_unknown pin", "400 session_bound pin", "400 session_bound allow", "429 engine_full", "503 engine_full",
}

// Everything that can happen to requests happens at random: what clients see is
// documented, and nothing is left.
func TestEverythingAtRandomLeavesNothing(t *testing.T) {
	f := startBusyFleet(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	before := f.r.rest()
	outcomes := churn{
		seed: seed, lasts: randomRun, clients: manyClients, ask: f.request, pause: 100 * time.Millisecond,
		disturb: f.disturb, every: 50 * time.Millisecond,
	}.run(t)
	f.restore()
	f.r.quiet("m")
	f.c.client.CloseIdleConnections()
	outcomes.verdict(t, expected{
		served: []string{"served"}, oneOf: 4, left: []string{"cancelled"}, documented: documented,
		must: []string{"cancelled", "429 overloaded queue_full", "429 overloaded queue_timeout", "429 engine_full", "503 worker_unreachable"},
	})
	f.r.bound("m", 0, soon)
	f.r.restsAgain(before)
	f.r.saidNothingBad()
}
