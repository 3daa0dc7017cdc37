package app_test

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
)

// put brings a worker by the admin API and waits until it is ready.
func (r *reloadable) put(t *testing.T, name string, body map[string]any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := r.call(t, http.MethodPut, "/v1/workers/"+name, r.Token(), text); status >= 300 {
		t.Fatalf("put %s: %d %s", name, status, answer)
	}
	waitForWorkers(t, r.App)
}

func (r *reloadable) delete(t *testing.T, name string) {
	t.Helper()
	if status, answer := r.call(t, http.MethodDelete, "/v1/workers/"+name, r.Token(), nil); status >= 300 {
		t.Fatalf("delete %s: %d %s", name, status, answer)
	}
}

// asked is the status of a request for a model.
func (r *reloadable) asked(t *testing.T, model string, headers ...string) int {
	t.Helper()
	status, _ := r.ask(t, model, headers...)
	return status
}

func (r *reloadable) models(t *testing.T) (ids []string) {
	t.Helper()
	resp, err := client.Get(r.FrontendURL() + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var list struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	return ids
}

// series are the router's series by name and labels.
func (r *reloadable) series(t *testing.T) (names []string) {
	t.Helper()
	_, text := r.call(t, http.MethodGet, "/metrics", r.Token(), nil)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "routerd_") {
			names = append(names, line[:strings.LastIndexByte(line, ' ')])
		}
	}
	slices.Sort(names)
	return names
}

func TestAModelThatIsForgottenLeavesNothing(t *testing.T) {
	e := engine(t, "e1", nil)
	cfg := withService(t)
	cfg.Workers.ForgetModels = config.Duration(time.Second)
	r := startReloadable(t, cfg)
	record := map[string]any{"url": e.URL(), "model": "m", "kv_events": e.EventEndpoints(), "replay": e.ReplayEndpoints(), "adapters": []any{map[string]any{"name": "a1"}}}
	life := func() {
		t.Helper()
		r.put(t, "w1", record)
		for range 3 {
			if status := r.asked(t, "m", "X-Session-Id", "s"); status != http.StatusOK {
				t.Errorf("with a worker: %d", status)
			}
		}
		if ids := r.models(t); !slices.Equal(ids, []string{"a1", "m"}) {
			t.Errorf("models %v", ids)
		}
		r.delete(t, "w1")
		// One that restarts is expected back.
		if status := r.asked(t, "m"); status != http.StatusServiceUnavailable {
			t.Errorf("just without a worker: %d", status)
		}
		testkit.Until(t, "the model is forgotten", func() bool { return len(r.models(t)) == 0 })
		if status := r.asked(t, "m"); status != http.StatusNotFound {
			t.Errorf("of a model that is forgotten: %d", status)
		}
	}
	life() // makes what every model needs, such as the series of each status
	series, routines := r.series(t), runtime.NumGoroutine()
	if slices.ContainsFunc(series, func(s string) bool { return strings.Contains(s, `model="`) || strings.Contains(s, `worker="`) }) {
		t.Errorf("series of a model or a worker that are gone:\n%s", strings.Join(series, "\n"))
	}
	for range 2 {
		life()
		if diff := cmp.Diff(series, r.series(t)); diff != "" {
			t.Errorf("series (-before +after)\n%s", diff)
		}
		testkit.Until(t, "the goroutines are as before", func() bool { return runtime.NumGoroutine() <= routines })
	}
	if got := show[struct{ Partitions []any }](t, r, "/v1/partitions"); len(got.Partitions) != 0 {
		t.Errorf("partitions %v", got.Partitions)
	}
}

func TestModelsThatTheConfigurationNamesOrWhoseWorkerIsDrainedAreKept(t *testing.T) {
	cfg := settings(t)
	cfg.Workers.ForgetModels = config.Duration(time.Second)
	cfg.Models = map[string]config.Model{"named": config.DefaultModel()}
	r := startReloadable(t, cfg)
	for _, model := range []string{"named", "drained", "gone"} {
		r.put(t, model, map[string]any{"url": fakeWorker(t, fine), "model": model, "block_size": 16, "no_health_check": true})
	}
	if status, answer := r.call(t, http.MethodPost, "/v1/workers/drained/drain", r.Token(), []byte(`{"timeout":"10ms"}`)); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	testkit.Until(t, "the time to drain is over", func() bool {
		reasons := show[struct{ Reasons []string }](t, r, "/v1/workers/drained").Reasons
		return len(reasons) == 1 && strings.HasPrefix(reasons[0], "drain_over")
	})
	r.delete(t, "named")
	r.delete(t, "gone")
	testkit.Until(t, "who was the last to lose its worker is forgotten", func() bool { return r.asked(t, "gone") == http.StatusNotFound })
	for _, model := range []string{"named", "drained"} {
		if status := r.asked(t, model); status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d", model, status)
		}
	}
	r.delete(t, "drained")
	testkit.Until(t, "whose worker is not drained but gone is forgotten", func() bool { return r.asked(t, "drained") == http.StatusNotFound })
}

func testForgetModels(t *testing.T) {
	cfg := settings(t)
	cfg.Workers.ForgetModels = 0
	r := startReloadable(t, cfg)
	r.put(t, "w1", map[string]any{"url": fakeWorker(t, fine), "model": "m", "block_size": 16, "no_health_check": true})
	r.delete(t, "w1")
	before := r.asked(t, "m")
	r.change(t, func(c *config.Config) { c.Workers.ForgetModels = config.Duration(time.Second) }, "workers.forget_models")
	testkit.Until(t, "it is forgotten", func() bool { return r.asked(t, "m") == http.StatusNotFound })
	statuses(t, [2]int{http.StatusServiceUnavailable, http.StatusNotFound}, before, r.asked(t, "m"))
}

// A worker comes and goes while its partition is forgotten, twice for each time it comes:
// it is ready in the end, also where its partition went between its preparation and its
// commit, and its events have an index.
func TestAWorkerThatComesWhileItsPartitionIsForgottenIsReady(t *testing.T) {
	const rounds, lost = 60, 2
	f := fleetOf(t, false, nil)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var forgotten, allowed atomic.Int64
	all.Go(func() {
		for ctx.Err() == nil {
			// As if an hour had passed: nothing but a worker keeps it.
			keys := f.Core.Forget(time.Now().Add(time.Hour), time.Minute, func(fleet.PartitionKey) bool { return allowed.Load() < 1 })
			forgotten.Add(int64(len(keys)))
			allowed.Add(-int64(len(keys)))
			runtime.Gosched()
		}
	})
	defer all.Wait()
	defer stop()
	rec := wish(t, 1, func(r *fleet.Record) { r.KVEvents = map[int]string{0: "tcp://127.0.0.1:9"} })
	for i := range rounds {
		allowed.Store(lost)
		applied(t, f, rec)
		testkit.Until(t, "the worker is ready", func() bool {
			v, ok := f.Reconciler.Worker("w1")
			return ok && v.Lifecycle == core.Ready && len(v.Reasons) == 0
		})
		if sel, err := f.Core.Select(t.Context(), &core.Request{Kind: core.Query, Partition: oneModel}); err != nil || sel.Name != "w1" {
			t.Errorf("got %v, %v", sel, err)
		}
		applied(t, f)
		if i%3 == 0 { // else the next one comes at once
			allowed.Store(1)
			testkit.Until(t, "it is forgotten", func() bool { return len(f.Core.Models("")) == 0 })
		}
	}
	if forgotten.Load() < rounds/3 {
		t.Errorf("forgotten %d times in %d rounds", forgotten.Load(), rounds)
	}
}
