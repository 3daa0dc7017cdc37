package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
)

// reloadable is a router whose configuration a test changes.
type reloadable struct {
	*app.App
	inside *app.Inside
	log    *testkit.Log

	mu   sync.Mutex // guards all below
	cfg  config.Config
	bad  error         // what reading gives instead
	held chan struct{} // reading waits for its end; nil for not
	read int           // how often it was read
}

func (r *reloadable) load() (config.Config, error) {
	r.mu.Lock()
	held := r.held
	r.read++
	r.mu.Unlock()
	if held != nil {
		<-held
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg, r.bad
}

func (r *reloadable) set(change func(*config.Config)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.cfg)
}

func startReloadable(t *testing.T, cfg config.Config) *reloadable {
	t.Helper()
	r := &reloadable{cfg: cfg, log: &testkit.Log{}}
	var err error
	if r.App, r.inside, err = app.StartWatched(t.Context(), cfg, r.load, app.NewLog(cfg.Log, r.log)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := r.Stop(ctx); err != nil && !errors.Is(err, app.ErrGrace) {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the router's log:\n%s", r.log)
		}
	})
	return r
}

// call uses the admin API.
func (r *reloadable) call(t *testing.T, method, path, token string, body []byte) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.AdminURL()+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return answerOf(t, req)
}

func answerOf(t *testing.T, req *http.Request) (int, []byte) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// show reads a view of the admin API.
func show[T any](t *testing.T, r *reloadable, path string) (out T) {
	t.Helper()
	if status := admin(t, r.App, path, &out); status != http.StatusOK {
		t.Fatalf("%s: status %d", path, status)
	}
	return out
}

// reloadAnswer is what POST /v1/config/reload says.
type reloadAnswer struct {
	status   int
	Changed  []string
	At       time.Time
	Warnings []struct{ Code, Item, Message string }
	Error    struct {
		Code, Message string
		Details       struct{ Step, Item, Allowed string }
	}
}

func (r *reloadable) reload(t *testing.T) (a reloadAnswer) {
	t.Helper()
	status, body := r.call(t, http.MethodPost, "/v1/config/reload", r.Token(), nil)
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	a.status = status
	return a
}

// change changes the configuration; the reload must say that keys have changed.
func (r *reloadable) change(t *testing.T, change func(*config.Config), keys ...string) {
	t.Helper()
	r.set(change)
	got := r.reload(t)
	if got.status != http.StatusOK || !slices.Equal(got.Changed, keys) || time.Since(got.At).Abs() > time.Minute {
		t.Fatalf("reload: %+v, want changed %q", got, keys)
	}
}

// ask sends a completion and returns the answer's status and head.
func (r *reloadable) ask(t *testing.T, model string, headers ...string) (int, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.FrontendURL()+"/v1/completions",
		strings.NewReader(fmt.Sprintf(`{"model":%q,"prompt":"some words","max_tokens":2}`, model)))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, resp.Header
}

// record is a worker of model m with a block size of 16.
func record(t *testing.T, name, url string, change ...func(*fleet.Record)) fleet.Record {
	t.Helper()
	rec := fleet.Record{NoHealthCheck: true, Name: name, URL: url, Model: "m", BlockSize: 16}
	for _, c := range change {
		c(&rec)
	}
	rec, err := rec.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func seed(t *testing.T, use string) policy.Spec {
	t.Helper()
	spec, err := policy.ParseSpec(fmt.Appendf(nil, `{"scorers":[{"use":%q}]}`, use))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestAReloadWithoutAChangeChangesNothing(t *testing.T) {
	r := startReloadable(t, settings(t))
	r.change(t, func(*config.Config) {})
	if err := r.Reload(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWhatOnlyARestartChangesRefusesTheReloadNamingEveryKey(t *testing.T) {
	cfg := settings(t)
	url := serveWorker(t, func() {})
	cfg.Workers.Static = []fleet.Record{record(t, "w1", url)}
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	r.set(func(c *config.Config) {
		c.DataDir, c.Frontend.Listen, c.Admin.Listen, c.Frontend.Retries = "/elsewhere", "127.0.0.1:1", "127.0.0.1:2", 0
		c.Models = map[string]config.Model{"m": {BlockSize: 32, Tokenize: "engine"}}
		c.Workers.Static = []fleet.Record{record(t, "w1", url, func(r *fleet.Record) { r.BlockSize = 64 })}
	})
	got := r.reload(t)
	if got.status != http.StatusConflict || got.Error.Code != "conflict" || got.Error.Details.Step != "restart" ||
		got.Error.Details.Item != "admin.listen, data_dir, frontend.listen, models.m.block_size, workers.static[0].block_size" {
		t.Errorf("got %+v", got)
	}
	for _, want := range []string{`admin.listen: "127.0.0.1:2" is not allowed; allowed: "127.0.0.1:0", or a restart`, `models.m.block_size: "32"`, `"16", or a restart`} {
		if !strings.Contains(got.Error.Message, want) {
			t.Errorf("the message lacks %s: %s", want, got.Error.Message)
		}
	}
	r.set(func(c *config.Config) { *c = cfg })
	r.change(t, func(c *config.Config) { c.Frontend.Retries = 1 }, "frontend.retries")
}

func TestO7_ABadConfigurationLeavesTheOldOneInForce(t *testing.T) {
	cfg := settings(t)
	r := startReloadable(t, cfg)
	was := metric(t, r, "routerd_config_last_success_timestamp_seconds")
	missing := func(c *config.Config) {
		c.Frontend.MaxBody = 1 << 10
		c.Policies = map[string]policy.Spec{"fast": seed(t, "module:nowhere"), "more": seed(t, "builtin:least-load")}
	}
	for _, c := range []struct {
		name             string
		bad              error
		change           func(*config.Config)
		status           int
		step, item, says string
	}{
		{
			"unknown key", &config.Error{Problems: []config.Problem{{Source: "routerd.yaml:2:3", Key: "frontend.grce", Reason: "unknown key"}}}, nil,
			http.StatusBadRequest, "check", "frontend.grce", "routerd.yaml:2:3: frontend.grce: unknown key",
		},
		{"no file", fmt.Errorf("read configuration: %w", os.ErrNotExist), nil, http.StatusBadRequest, "read", "", "read configuration"},
		{"a module that does not exist", nil, missing, http.StatusBadRequest, "prepare", "policies.fast", "nowhere"},
		{"a policy that does not exist", nil, func(c *config.Config) { c.Routing.Default = "nobody" }, http.StatusBadRequest, "check", "routing.default", "nobody"},
		{"a token that is none", nil, func(c *config.Config) { c.Admin.TokenFile = t.TempDir() }, http.StatusBadRequest, "prepare", "admin.token_file", "is a directory"},
	} {
		r.mu.Lock()
		r.bad, r.cfg = c.bad, cfg
		if c.change != nil {
			c.change(&r.cfg)
		}
		r.mu.Unlock()
		got := r.reload(t)
		if got.status != c.status || got.Error.Details.Step != c.step || got.Error.Details.Item != c.item || !strings.Contains(got.Error.Message, c.says) {
			t.Errorf("%s: got %+v", c.name, got)
		}
		if err := r.Reload(t.Context()); err == nil {
			t.Errorf("%s: the signal's reload said nothing", c.name)
		}
	}
	if n := strings.Count(r.log.String(), "the old one stays in force"); n != 10 {
		t.Errorf("%d lines about 10 reloads in\n%s", n, r.log)
	}
	for _, by := range []string{"api", "signal"} {
		if n := metric(t, r, `routerd_config_reloads_total{result="refused",trigger="`+by+`"}`); n != 5 {
			t.Errorf("counted %v refused reloads by %s, want 5", n, by)
		}
	}
	if at := metric(t, r, "routerd_config_last_success_timestamp_seconds"); at != was {
		t.Errorf("a refused reload counts as a success")
	}
	var policies struct{ Policies []struct{ Name string } }
	admin(t, r.App, "/v1/policies", &policies)
	if len(policies.Policies) != 1 {
		t.Errorf("policies of refused reloads: %+v", policies)
	}
	r.mu.Lock()
	r.bad, r.cfg = nil, cfg
	r.mu.Unlock()
	r.change(t, func(c *config.Config) { c.Frontend.MaxBody = 2 << 10 }, "frontend.max_body")
	if n := metric(t, r, `routerd_config_reloads_total{result="ok",trigger="api"}`); n != 1 {
		t.Errorf("counted %v good reloads, want 1", n)
	}
	if at := metric(t, r, "routerd_config_last_success_timestamp_seconds"); at <= was {
		t.Errorf("the time of the last success is %v, the start's %v", at, was)
	}
}

// metric is a sample of the router's metrics.
func metric(t *testing.T, r *reloadable, series string) (v float64) {
	t.Helper()
	_, text := r.call(t, http.MethodGet, "/metrics", r.Token(), nil)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			if _, err := fmt.Sscan(rest, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", series)
	return 0
}

func TestAWorkerThatTheAPIHasRefusesTheReload(t *testing.T) {
	r := startReloadable(t, settings(t))
	url := serveWorker(t, func() {})
	if status, answer := r.call(t, http.MethodPut, "/v1/workers/w1", r.Token(), []byte(`{"url":"`+url+`","model":"m","block_size":16}`)); status != http.StatusCreated {
		t.Fatalf("%d %s", status, answer)
	}
	r.set(func(c *config.Config) {
		c.Workers.Static = []fleet.Record{record(t, "w1", "http://127.0.0.1:1"), record(t, "w2", "http://127.0.0.1:2")}
	})
	got := r.reload(t)
	if got.status != http.StatusConflict || got.Error.Details.Step != "prepare" || !strings.Contains(got.Error.Message, "workers.static: ") {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff(map[string]string{"w1": "ready"}, lifecycles(t, r.App)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestReloadsRunOneAfterAnother(t *testing.T) {
	r := startReloadable(t, settings(t))
	held := make(chan struct{})
	r.mu.Lock()
	r.held = held
	r.mu.Unlock()
	ended := make(chan error, 8)
	for range cap(ended) {
		go func() { ended <- r.Reload(context.Background()) }()
	}
	select {
	case err := <-ended:
		t.Fatalf("a reload ended while the first one reads: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	r.mu.Lock()
	if r.read != 1 {
		t.Errorf("%d reloads read at once", r.read)
	}
	r.mu.Unlock()
	close(held)
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestAReloadDuringShutdownIsRefused(t *testing.T) {
	r := startReloadable(t, settings(t))
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan struct{})
	r.mu.Lock()
	r.held = held
	r.mu.Unlock()
	reading := make(chan error, 2)
	go func() { reading <- r.Reload(ctx) }()
	for begun := false; !begun; {
		r.mu.Lock()
		begun = r.read == 1
		r.mu.Unlock()
	}
	go func() { reading <- r.Reload(ctx) }()
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop(context.Background()) }()
	if err := <-reading; err == nil || !strings.Contains(err.Error(), "shutting down") { // the one that waited
		t.Errorf("got %v", err)
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped while a reload reads: %v", err)
	default:
	}
	close(held)
	if err := <-reading; err == nil || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := r.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("got %v", err)
	}
}

func TestATokenFileIsReadAgain(t *testing.T) {
	cfg := settings(t)
	cfg.Admin.TokenFile = filepath.Join(t.TempDir(), "token")
	r := startReloadable(t, cfg)
	old := r.Token()
	const next = "another-token-of-the-operator"
	if err := os.WriteFile(cfg.Admin.TokenFile, []byte(next+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.change(t, func(*config.Config) {}, "admin.token_file")
	was, _ := r.call(t, http.MethodGet, "/v1/workers", old, nil)
	now, _ := r.call(t, http.MethodGet, "/v1/workers", next, nil)
	if was != http.StatusUnauthorized || now != http.StatusOK || r.Token() != next {
		t.Errorf("the old token got %d, the new one %d", was, now)
	}
	if strings.Contains(r.log.String(), next) {
		t.Error("the log has the token")
	}
}

// The seed cannot be written down: the workers, which had changed before, are
// as they were, and so is every setting.
func TestAFailureWhilePublishingTakesBackWhatWasPublished(t *testing.T) {
	cfg := settings(t)
	cfg.Workers.Static = []fleet.Record{record(t, "w1", serveWorker(t, func() {}))}
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	policies := filepath.Join(cfg.DataDir, "policies")
	if err := os.Rename(policies, policies+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(policies, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next := record(t, "w2", serveWorker(t, func() {}))
	change := func(c *config.Config) {
		c.Workers.Static = []fleet.Record{next}
		c.Policies = map[string]policy.Spec{"fast": seed(t, "builtin:least-load")}
		c.Routing.Default, c.Frontend.MaxBody = "fast", 1<<10
	}
	r.set(change)
	if got := r.reload(t); got.status != http.StatusInternalServerError || got.Error.Code != "internal" {
		t.Errorf("got %+v", got)
	}
	waitForWorkers(t, r.App)
	if diff := cmp.Diff(map[string]string{"w1": "ready"}, lifecycles(t, r.App)); diff != "" {
		t.Errorf("workers (-want +got)\n%s", diff)
	}
	if got := r.decidedBy(t); got != "default" {
		t.Errorf("decided by %s", got)
	}
	if status, _ := r.ask(t, strings.Repeat("m", 2<<10)); status != http.StatusNotFound {
		t.Errorf("status %d: the new max_body is in force", status)
	}
	if err := errors.Join(os.Remove(policies), os.Rename(policies+".away", policies)); err != nil {
		t.Fatal(err)
	}
	r.change(t, func(*config.Config) {}, "frontend.max_body", "policies.fast", "routing.default", "workers.static")
	if got := r.decidedBy(t); got != "fast" {
		t.Errorf("decided by %s after the good reload", got)
	}
}

func TestABlockSizeMayChangeWhereNoWorkerIs(t *testing.T) {
	cfg := settings(t)
	cfg.Workers.Static = []fleet.Record{record(t, "w1", serveWorker(t, func() {}))}
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	size := func(n int) func(*config.Config) {
		return func(c *config.Config) {
			c.Models = map[string]config.Model{"m": {BlockSize: n, Tokenize: "engine"}, "n": {BlockSize: n, Tokenize: "engine"}}
		}
	}
	r.change(t, size(16), "models.m", "models.n") // what the partition has
	r.set(size(32))
	if got := r.reload(t); got.status != http.StatusConflict || got.Error.Details.Item != "models.m.block_size" {
		t.Errorf("got %+v", got)
	}
	r.change(t, func(c *config.Config) { size(16)(c); c.Workers.Static = nil }, "workers.static")
	r.change(t, size(32), "models.m.block_size", "models.n.block_size")
	r.change(t, func(c *config.Config) {
		c.Workers.Static = []fleet.Record{record(t, "w2", "http://127.0.0.1:1", func(r *fleet.Record) { r.Model, r.BlockSize = "n", 0 })}
	}, "workers.static")
	if diff := cmp.Diff(map[string]string{"w2": "ready"}, lifecycles(t, r.App)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
