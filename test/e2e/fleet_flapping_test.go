//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
)

const (
	flappingWorkers = 100
	flappingClients = 32
	flappingCallers = 8 // of the selection service
	flappingEvery   = 20 * time.Millisecond
)

// flappingConfig notices and forgives quickly, so that workers come and go often.
const flappingConfig = `models: {m: {block_size: 16}}
frontend: {first_byte_timeout: 2s, breaker: {cooldown: 500ms, max_cooldown: 2s}}
selection: {expiry: 2s}
workers:
  health_check:
    {interval: 1s, timeout: 500ms, failures: 2, grace: 5s, base_ejection: 500ms, max_ejection: 2s, slow_start: 1s, passive: {failures: 3}}
`

// flappingEngine is an engine that crashes and comes again at the same addresses.
type flappingEngine struct {
	id     int
	host   string            // a loopback address of its own
	change func(*sim.Config) // nil for nothing

	mu sync.Mutex  // guards e
	e  *sim.Engine // nil while it is down
}

func (f *flappingEngine) url() string    { return "http://" + f.host + ":8000" }
func (f *flappingEngine) name() string   { return fmt.Sprint("w", f.id) }
func (f *flappingEngine) events() string { return "tcp://" + f.host + ":5557" }
func (f *flappingEngine) replay() string { return "tcp://" + f.host + ":5558" }

// start runs a new engine, with an empty cache.
func (f *flappingEngine) start() error {
	c := sim.DefaultConfig()
	c.Name, c.Model, c.Blocks, c.AnswerTokens, c.DecodePerToken = f.name(), "m", 512, 8, 2*time.Millisecond
	c.PrefillPerToken = 20 * time.Microsecond
	c.Listen, c.EventsListen, c.ReplayListen = f.host+":8000", f.events(), f.replay()
	if f.change != nil {
		f.change(&c)
	}
	e, err := sim.New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("make engine %d: %w", f.id, err)
	}
	if err := e.Start(); err != nil {
		return fmt.Errorf("start engine %d: %w", f.id, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.e = e
	return nil
}

// stop ends the engine as a crash does.
func (f *flappingEngine) stop() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.e == nil {
		return nil
	}
	e := f.e
	f.e = nil
	if err := e.Close(); err != nil {
		return fmt.Errorf("close engine %d: %w", f.id, err)
	}
	return nil
}

// flappingFleet is a router and a selection service with many engines that come,
// go and fail.
type flappingFleet struct {
	t       *testing.T
	s       *service
	c       *crowd
	engines []*flappingEngine
	crashes sync.WaitGroup
	acts    map[string]int // what was done; of the goroutine that disturbs
	fresh   int            // prompts that were sent once
}

func startFlappingFleet(t *testing.T) *flappingFleet {
	t.Helper()
	f := &flappingFleet{t: t, acts: map[string]int{}}
	for i := range flappingWorkers {
		e := &flappingEngine{id: i + 1, host: ownHost(1 + i)}
		if err := e.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.stop(); err != nil {
				t.Error(err)
			}
		})
		f.engines = append(f.engines, e)
	}
	f.s = startService(t, flappingConfig)
	f.c = newCrowd(t, f.s.router)
	return f
}

// ownHost is a loopback address of this process, where fixed ports are free.
func ownHost(n int) string {
	return fmt.Sprintf("127.%d.%d.%d", 10+os.Getpid()>>8%200, os.Getpid()%256, n)
}

// A fleet whose workers join, leave, restart and fail all the time, with traffic
// through the frontend and the selection service: what clients see is documented,
// the fleet recovers, and of workers that are gone nothing is left.
func TestAFlappingFleet(t *testing.T) {
	f := startFlappingFleet(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f.warm(seed)
	f.empty()
	before := f.s.rest()

	f.restore()
	began := time.Now()
	outcomes := churn{
		seed: seed, lasts: flappingRun, clients: flappingClients + flappingCallers, ask: f.asks, pause: 50 * time.Millisecond,
		disturb: f.disturb, every: flappingEvery,
	}.run(t)
	f.restore()
	t.Logf("all %d workers are ready %s after the end of the disturbances", flappingWorkers, time.Since(began)-flappingRun)
	f.told()
	for _, act := range slices.Sorted(maps.Keys(f.acts)) {
		t.Logf("%6d times: %s", f.acts[act], act)
	}
	outcomes.verdict(t, expected{
		served: []string{"served", "selected"}, oneOf: 2, left: []string{"cancelled", "left"}, documented: flappingDocumented,
		must: []string{"selected", "left", "cancelled", brokenOff, "500 engine_broken"},
	})
	f.empty()
	f.nothingLeft(before)
	f.s.saidNothingBad()
}

// warm uses everything once, so that what is made once is there.
func (f *flappingFleet) warm(seed uint64) {
	f.t.Helper()
	f.restore()
	together(flappingClients+flappingCallers, func(i int) {
		own := rand.New(rand.NewPCG(seed, uint64(i)))
		for range 20 {
			f.asks(i, own)
		}
	})
	for _, e := range f.engines {
		f.sends(e)
	}
}

// flappingDocumented are the failures that a client may see here. Those of the
// router have a status and a code of docs/reference/http.md and, with "select" or
// "free", of docs/reference/selection-api.md; engine_… are what workers answered
// themselves. An answer that a worker breaks off after it began cannot be taken back.
var flappingDocumented = []string{
	"503 no_workers", "503 workers_ejected", "503 worker_unreachable", "502 worker_failed", "503 worker_failed", "504 worker_timeout",
	"429 overloaded", "500 engine_broken", "429 engine_full", "503 engine_full", brokenOff,
	"select 503 unavailable no_workers", "select 503 unavailable workers_ejected", "free 404 not_found", "free 404 not_found not_found",
}

// ofWorker finds a worker's name, id or address in a series.
var ofWorker = regexp.MustCompile(`"w?[0-9]+"|127\.`)

// codes are the labels whose values are numbers.
var codes = regexp.MustCompile(`(code|status|le|quantile|revision)="[^"]*"`)

// nothingLeft checks that a router without workers is as it was without workers.
func (f *flappingFleet) nothingLeft(before rest) {
	f.t.Helper()
	after := f.s.restsAgain(before)
	more := 0
	for series := range after.series {
		if ofWorker.MatchString(codes.ReplaceAllString(series, "")) {
			f.t.Errorf("a series of a worker that is gone: %s", series)
		}
		if _, was := before.series[series]; !was {
			more++
		}
	}
	f.t.Logf("series %d before and %d after, %d of them new, memory %.0f and %.0f MiB", len(before.series), len(after.series), more,
		before.series["process_resident_memory_bytes"]/(1<<20), after.series["process_resident_memory_bytes"]/(1<<20))
	if more > flappingWorkers {
		f.t.Errorf("%d series are new, want those of outcomes alone", more)
	}
}

// empty removes all workers and waits until the router has nothing of them.
func (f *flappingFleet) empty() {
	f.t.Helper()
	f.s.quiet("m")
	for _, e := range f.engines {
		f.s.must("DELETE", "/v1/workers/"+e.name(), nil, nil)
	}
	f.c.client.CloseIdleConnections()
	f.s.client.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	eventually(f.t, 2*time.Minute, func() error {
		m := f.s.metrics()
		for _, name := range []string{
			"routerd_selection_reservations", "routerd_selection_pending", "routerd_queue_requests", "routerd_frontend_in_flight",
			"routerd_ingress_streams", "routerd_ingress_load_sockets", "routerd_scrape_ranks", "routerd_upstream_connections", "routerd_upstream_breakers",
			"routerd_health_ejected_workers", "routerd_health_kept_workers", "routerd_health_returning_workers", "routerd_health_starting_workers",
		} {
			if got := sum(m, name); got != 0 {
				return fmt.Errorf("%s is %v without workers", name, got)
			}
		}
		return nil
	})
	var got struct {
		Partitions []partitionView `json:"partitions"`
	}
	f.s.must("GET", "/v1/partitions?blocks=1", nil, &got)
	for _, p := range got.Partitions {
		if len(p.Ranks) > 0 {
			f.t.Errorf("ranks are left: %+v", p.Ranks)
		}
	}
	dump := read[map[string]struct {
		Events []json.RawMessage `json:"events"`
	}](f.t, f.s.says(f.t, http.StatusOK, "GET", "/dump", nil))
	for partition, d := range dump {
		if len(d.Events) > 0 {
			f.t.Errorf("the index of %s still has %d entries, such as %s", partition, len(d.Events), d.Events[0])
		}
	}
}
