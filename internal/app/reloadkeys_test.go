package app_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/plugins/abi"
)

// liveKeys has for each key that a reload changes a test that sees the new value
// at work; the fields of a worker's record are one.
func liveKeys() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"frontend.max_body":           testMaxBody,
		"frontend.grace":              testGrace,
		"frontend.forwarded_for":      testForwardedFor,
		"frontend.first_byte_timeout": testFirstByteTimeout,
		"frontend.retries":            testRetries,
		"frontend.half_close":         testHalfClose,
		"frontend.trust_headers":      testTrustHeaders,
		"admin.token_file":            testTokenFile,
		"admin.max_body":              testAdminMaxBody,
		"admin.metrics_public":        testMetricsPublic,
		"workers.static[]":            testStaticWorkers,
		"workers.forget_models":       testForgetModels,
		"models.NAME.block_size":      testBlockSize,
		"models.NAME.tokenize":        testTokenize,
		"models.NAME.policy":          testModelPolicy,
		"routing.rules[].model":       testRules,
		"routing.rules[].group":       testRules,
		"routing.rules[].policy":      testRules,
		"routing.default":             testRoutingDefault,
		"routing.seed":                testSeed,
		"policies.NAME":               testPolicies,
		"plugins.call_deadline":       testPluginLimits,
		"plugins.pool_wait":           testPluginLimits,
		"plugins.memory_limit":        testPluginLimits,
		"plugins.fuel_cap":            testPluginLimits,
		"plugins.headers":             testHeaders,
		"plugins.guard":               testGuard,
		"log.level":                   testLog,
		"log.format":                  testLog,
	}
}

func TestEveryLiveKeyReachesItsConsumerAtReload(t *testing.T) {
	tests := liveKeys()
	maps.Copy(tests, waitingKeys())
	maps.Copy(tests, serviceKeys())
	maps.Copy(tests, watchTests())
	watched := watchKeys()
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*\\| live \\| [^|]*\\|$")
	reference := config.Reference()
	for _, m := range row.FindAllStringSubmatch(reference, -1) {
		key := m[1]
		if strings.Contains(reference, "| `"+key+".") || strings.Contains(reference, "| `"+key+"[].") {
			continue // what it holds is tested
		}
		if strings.HasPrefix(key, "workers.static[].") {
			key = "workers.static[]"
		}
		if tests[key] == nil && !slices.Contains(watched, key) {
			t.Errorf("%s is live and has no test", key)
		}
	}
	for key, test := range tests {
		t.Run(key, test)
	}
}

// fakeWorker serves every path by a handler.
func fakeWorker(t *testing.T, handle http.HandlerFunc) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: handle}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close(); <-served })
	return "http://" + ln.Addr().String()
}

// withWorkers starts a router with workers w1, w2, … of model m.
func withWorkers(t *testing.T, handlers ...http.HandlerFunc) *reloadable {
	t.Helper()
	cfg := settings(t)
	for i, h := range handlers {
		cfg.Workers.Static = append(cfg.Workers.Static, record(t, fmt.Sprintf("w%d", i+1), fakeWorker(t, h)))
	}
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	return r
}

func fine(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/tokenize" {
		http.NotFound(w, r)
		return
	}
	_, _ = io.WriteString(w, `{"choices":[{"text":"x"}],"usage":{"prompt_tokens":8,"completion_tokens":1}}`)
}

// silent waits until the client has gone, which the server notices once the body
// is read.
func silent(req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	<-req.Context().Done()
}

// statuses compares what was before and after a change.
func statuses(t *testing.T, want [2]int, before, after int) {
	t.Helper()
	if diff := cmp.Diff(want, [2]int{before, after}); diff != "" {
		t.Errorf("status before and after (-want +got)\n%s", diff)
	}
}

func testMaxBody(t *testing.T) {
	r := startReloadable(t, settings(t))
	long := strings.Repeat("m", 2<<10)
	before, _ := r.ask(t, long)
	r.change(t, func(c *config.Config) { c.Frontend.MaxBody = 1 << 10 }, "frontend.max_body")
	after, _ := r.ask(t, long)
	statuses(t, [2]int{http.StatusNotFound, http.StatusRequestEntityTooLarge}, before, after)
}

func testGrace(t *testing.T) {
	begun := make(chan struct{})
	r := withWorkers(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/tokenize" {
			http.NotFound(w, req)
			return
		}
		close(begun)
		silent(req)
	})
	r.change(t, func(c *config.Config) { c.Frontend.Grace = 0 }, "frontend.grace")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		resp, err := client.Post(r.FrontendURL()+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"x"}`))
		if err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-begun
	stopping := time.Now()
	err := r.Stop(context.Background())
	if took := time.Since(stopping); !errors.Is(err, app.ErrGrace) || took > 10*time.Second {
		t.Errorf("stopped after %s with %v; the start's grace is 30s", took, err)
	}
	<-answered
}

func testForwardedFor(t *testing.T) {
	seen := make(chan string, 1)
	r := withWorkers(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/tokenize" {
			seen <- strings.Join(req.Header.Values("X-Forwarded-For"), "|")
		}
		fine(w, req)
	})
	r.ask(t, "m", "X-Forwarded-For", "192.0.2.1")
	before := <-seen
	r.change(t, func(c *config.Config) { c.Frontend.ForwardedFor = "replace" }, "frontend.forwarded_for")
	r.ask(t, "m", "X-Forwarded-For", "192.0.2.1")
	if diff := cmp.Diff([2]string{"192.0.2.1, 127.0.0.1", "127.0.0.1"}, [2]string{before, <-seen}); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func testFirstByteTimeout(t *testing.T) {
	r := withWorkers(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/tokenize" {
			http.NotFound(w, req)
			return
		}
		silent(req)
	})
	r.change(t, func(c *config.Config) { c.Frontend.FirstByteTimeout = config.Duration(20 * time.Millisecond) }, "frontend.first_byte_timeout")
	if status, _ := r.ask(t, "m"); status != http.StatusGatewayTimeout {
		t.Errorf("status %d; the start's timeout is 10m", status)
	}
}

func testRetries(t *testing.T) {
	var asked atomic.Int64
	busy := func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/tokenize" {
			asked.Add(1)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	r := withWorkers(t, busy, busy)
	r.ask(t, "m")
	before := asked.Swap(0)
	r.change(t, func(c *config.Config) { c.Frontend.Retries = 0 }, "frontend.retries")
	r.ask(t, "m")
	statuses(t, [2]int{2, 1}, int(before), int(asked.Load()))
}

func testHalfClose(t *testing.T) {
	r := startReloadable(t, settings(t))
	c, err := net.Dial("tcp", strings.TrimPrefix(r.FrontendURL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	ends := func() bool {
		t.Helper()
		if _, err := io.WriteString(c, "GET /health HTTP/1.1\r\nHost: r\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.Close
	}
	before := ends()
	r.change(t, func(c *config.Config) { c.Frontend.HalfClose = "ignore" }, "frontend.half_close")
	if after := ends(); before || !after {
		t.Errorf("a connection of the old half_close ended before: %t, after: %t", before, after)
	}
}

func testTrustHeaders(t *testing.T) {
	r := withWorkers(t, fine)
	before, _ := r.ask(t, "m", "X-Routerd-Pin", "nobody")
	r.change(t, func(c *config.Config) { c.Frontend.TrustHeaders = false }, "frontend.trust_headers")
	after, _ := r.ask(t, "m", "X-Routerd-Pin", "nobody")
	statuses(t, [2]int{http.StatusBadRequest, http.StatusOK}, before, after)
}

func testTokenFile(t *testing.T) {
	r := startReloadable(t, settings(t))
	old, file := r.Token(), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("another-token-of-the-operator\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.change(t, func(c *config.Config) { c.Admin.TokenFile = file }, "admin.token_file")
	before, _ := r.call(t, http.MethodGet, "/v1/workers", old, nil)
	after, _ := r.call(t, http.MethodGet, "/v1/workers", "another-token-of-the-operator", nil)
	statuses(t, [2]int{http.StatusUnauthorized, http.StatusOK}, before, after)
}

// A mistyped path must not make a token that nobody has. The start makes it, and
// so does a reload in the data folder, where the token is looked for.
func TestAReloadMakesNoTokenFileThatIsConfigured(t *testing.T) {
	cfg := settings(t)
	cfg.Admin.TokenFile = filepath.Join(t.TempDir(), "token")
	r := startReloadable(t, cfg) // makes it
	token, typo := r.Token(), filepath.Join(t.TempDir(), "tokne")
	for name, change := range map[string]func(){
		"a typo": func() { r.set(func(c *config.Config) { c.Admin.TokenFile = typo }) },
		"the file is gone": func() {
			r.set(func(c *config.Config) { c.Admin.TokenFile = cfg.Admin.TokenFile })
			_ = os.Remove(cfg.Admin.TokenFile)
		},
	} {
		change()
		got := r.reload(t)
		if got.status != http.StatusBadRequest || got.Error.Details.Step != "prepare" || got.Error.Details.Item != "admin.token_file" || !strings.Contains(got.Error.Message, "does not exist") {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if _, err := os.Stat(typo); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file was made: %v", err)
	}
	if status, _ := r.call(t, http.MethodGet, "/v1/workers", token, nil); status != http.StatusOK || r.Token() != token {
		t.Errorf("the old token gets %d", status)
	}
	r.change(t, func(c *config.Config) { c.Admin.TokenFile = "" }, "admin.token_file")
	if r.Token() == token {
		t.Error("the token in the data folder was not made")
	}
}

func testAdminMaxBody(t *testing.T) {
	r := startReloadable(t, settings(t))
	put := func() int {
		status, _ := r.call(t, http.MethodPut, "/v1/workers/w1", r.Token(), make([]byte, 2<<10))
		return status
	}
	before := put()
	r.change(t, func(c *config.Config) { c.Admin.MaxBody = 1 << 10 }, "admin.max_body")
	statuses(t, [2]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, before, put())
}

func testMetricsPublic(t *testing.T) {
	r := startReloadable(t, settings(t))
	before, _ := r.call(t, http.MethodGet, "/metrics", "", nil)
	r.change(t, func(c *config.Config) { c.Admin.MetricsPublic = true }, "admin.metrics_public")
	after, _ := r.call(t, http.MethodGet, "/metrics", "", nil)
	statuses(t, [2]int{http.StatusUnauthorized, http.StatusOK}, before, after)
}

func testStaticWorkers(t *testing.T) {
	e := engine(t, "e1", nil)
	cfg := settings(t, e)
	old := cfg.Workers.Static[0]
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	whole := record(t, "w2", fakeWorker(t, fine), func(r *fleet.Record) {
		r.ID, r.Group, r.Engine, r.DPStart, r.DPSize = 9, "g", "sglang", 1, 2
		r.KVEvents, r.Replay = map[int]string{1: "tcp://127.0.0.1:1"}, map[int]string{1: "tcp://127.0.0.1:2"}
		r.MaxBatchedTokens, r.TotalKVBlocks = 100, 200
		r.Labels, r.Taints = map[string]string{"zone": "a"}, []string{"slow"}
		r.Adapters = []fleet.Adapter{{Name: "lora", ID: 3}}
	})
	plain := record(t, "w3", fakeWorker(t, fine))
	r.change(t, func(c *config.Config) { c.Workers.Static = []fleet.Record{whole, plain} }, "workers.static")
	if status, head := r.ask(t, "m"); status != http.StatusOK || head.Get("x-routerd-worker") != "w3" {
		t.Errorf("status %d, worker %q right after the reload", status, head.Get("x-routerd-worker"))
	}
	got := show[struct{ Workers []fleet.Record }](t, r, "/v1/workers")
	var err error
	if plain, err = plain.Filled(); err != nil {
		t.Fatal(err)
	}
	want := []fleet.Record{whole, plain}
	if want[0].ID > want[1].ID {
		want[0], want[1] = want[1], want[0]
	}
	if diff := cmp.Diff(want, got.Workers); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	r.change(t, func(c *config.Config) { c.Workers.Static = []fleet.Record{old} }, "workers.static")
	waitForWorkers(t, r.App)
	if _, head := r.ask(t, "m"); head.Get("x-routerd-worker") != "w1" {
		t.Errorf("worker %q", head.Get("x-routerd-worker"))
	}
}

// Case F3. The engine does not tell its block size: the configuration of exactly its
// model does.
func testBlockSize(t *testing.T) {
	const model = "Qwen/Qwen2.5-7B-Instruct"
	cfg := settings(t)
	for i, name := range []string{model, "Qwen/Qwen2", "5-7B-Instruct"} {
		cfg.Workers.Static = append(cfg.Workers.Static, record(t, fmt.Sprintf("w%d", i+1), fakeWorker(t, http.NotFound), func(r *fleet.Record) {
			r.Model, r.BlockSize = name, 0
		}))
	}
	r := startReloadable(t, cfg)
	before := lifecycles(t, r.App)
	r.change(t, func(c *config.Config) {
		c.Models = map[string]config.Model{model: {BlockSize: 16, Tokenize: "engine"}}
	}, "models."+model)
	want := map[string]string{"w1": "incomplete", "w2": "incomplete", "w3": "incomplete"}
	if diff := cmp.Diff(want, before); diff != "" {
		t.Errorf("before (-want +got)\n%s", diff)
	}
	want["w1"] = "ready"
	if diff := cmp.Diff(want, lifecycles(t, r.App)); diff != "" {
		t.Errorf("after (-want +got)\n%s", diff)
	}
	partitions := show[struct {
		Partitions []struct {
			Model     string
			BlockSize int `json:"block_size"`
		}
	}](t, r, "/v1/partitions")
	if len(partitions.Partitions) != 1 || partitions.Partitions[0].Model != model || partitions.Partitions[0].BlockSize != 16 {
		t.Errorf("partitions %+v", partitions)
	}
}

func testTokenize(t *testing.T) {
	var asked atomic.Int64
	r := withWorkers(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/tokenize" {
			asked.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fine(w, req)
	})
	r.ask(t, "m")
	before := asked.Swap(0)
	r.change(t, func(c *config.Config) { c.Models = map[string]config.Model{"m": {Tokenize: "off"}} }, "models.m")
	r.ask(t, "m")
	statuses(t, [2]int{1, 0}, int(before), int(asked.Load()))
	r.change(t, func(c *config.Config) { c.Models = map[string]config.Model{"m": {Tokenize: "text"}} }, "models.m.tokenize")
	r.ask(t, "m")
	statuses(t, [2]int{1, 0}, int(before), int(asked.Load()))
}

// decidedBy is the policy that a request to model m is decided by.
func (r *reloadable) decidedBy(t *testing.T) string {
	t.Helper()
	_, head := r.ask(t, "m")
	return show[struct{ Policy struct{ Name string } }](t, r, "/v1/decisions/"+head.Get("x-routerd-decision")).Policy.Name
}

// policed starts a router with two policies more than the default.
func policed(t *testing.T) *reloadable {
	t.Helper()
	cfg := settings(t)
	cfg.Workers.Static = []fleet.Record{record(t, "w1", fakeWorker(t, fine))}
	cfg.Policies = map[string]policy.Spec{"one": seed(t, "builtin:least-load"), "two": seed(t, "builtin:kv-aware")}
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	return r
}

func testModelPolicy(t *testing.T) {
	r := policed(t)
	got := []string{r.decidedBy(t)}
	model := func(name string) func(*config.Config) {
		return func(c *config.Config) { c.Models = map[string]config.Model{"m": {Tokenize: "off", Policy: name}} }
	}
	r.change(t, model("one"), "models.m")
	got = append(got, r.decidedBy(t))
	r.change(t, model("two"), "models.m.policy")
	got = append(got, r.decidedBy(t))
	if diff := cmp.Diff([]string{"default", "one", "two"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func testRules(t *testing.T) {
	r := policed(t)
	got := []string{}
	for _, rule := range []config.Rule{{Policy: "one"}, {Model: "m", Policy: "two"}, {Model: "n", Policy: "one"}, {Group: "default", Policy: "one"}, {Group: "g", Policy: "two"}} {
		r.change(t, func(c *config.Config) { c.Routing.Rules = []config.Rule{rule} }, "routing.rules")
		got = append(got, r.decidedBy(t))
	}
	if diff := cmp.Diff([]string{"one", "two", "default", "one", "default"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func testRoutingDefault(t *testing.T) {
	r := policed(t)
	r.change(t, func(c *config.Config) { c.Routing.Default = "one" }, "routing.default")
	if got := r.decidedBy(t); got != "one" {
		t.Errorf("decided by %s", got)
	}
}

func testSeed(t *testing.T) {
	r := withWorkers(t, fine)
	draw := func() string {
		t.Helper()
		_, head := r.ask(t, "m")
		return show[struct{ Request struct{ Seed string } }](t, r, "/v1/decisions/"+head.Get("x-routerd-decision")).Request.Seed
	}
	var runs [][3]string
	for _, seed := range []uint64{7, 8, 7} {
		r.change(t, func(c *config.Config) { c.Routing.Seed = seed }, "routing.seed")
		runs = append(runs, [3]string{draw(), draw(), draw()})
	}
	if runs[0] == runs[1] || runs[0] == runs[2] || runs[0][0] == runs[0][1] {
		t.Errorf("draws of the seeds 7, 8 and 7: %v", runs)
	}
	again := withWorkers(t, fine)
	again.change(t, func(c *config.Config) { c.Routing.Seed = 7 }, "routing.seed")
	r = again
	if got := [3]string{draw(), draw(), draw()}; got != runs[0] {
		t.Errorf("the first draws of the seed 7 in another router: %v, want %v", got, runs[0])
	}
}

func testPolicies(t *testing.T) {
	type shown struct {
		Active      int
		ActivatedBy string `json:"activated_by"`
		Drifted     bool
	}
	r := startReloadable(t, settings(t))
	put := func(use string, keys ...string) shown {
		t.Helper()
		r.change(t, func(c *config.Config) { c.Policies = map[string]policy.Spec{"fast": seed(t, use)} }, keys...)
		return show[shown](t, r, "/v1/policies/fast")
	}
	got := []shown{put("builtin:least-load", "policies.fast"), put("builtin:kv-aware", "policies.fast")}
	if status, answer := r.call(t, http.MethodPost, "/v1/policies/fast/activate", r.Token(), []byte(`{"revision":1}`)); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	r.set(func(c *config.Config) { c.Policies = map[string]policy.Spec{"fast": seed(t, "builtin:round-robin")} })
	if a := r.reload(t); len(a.Warnings) != 1 || a.Warnings[0].Code != "drifted" || a.Warnings[0].Item != "policies.fast" {
		t.Errorf("a reload that leaves a policy alone answers %+v", a)
	}
	got = append(got, show[shown](t, r, "/v1/policies/fast")) // what the API set stays
	r.change(t, func(c *config.Config) { c.Policies = nil }, "policies.fast")
	got = append(got, show[shown](t, r, "/v1/policies/fast")) // and is not removed
	want := []shown{{1, "config", false}, {2, "config", false}, {1, "api", true}, {1, "api", false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func testPluginLimits(t *testing.T) {
	r := startReloadable(t, settings(t))
	r.change(t, func(c *config.Config) {
		c.Plugins.CallDeadline, c.Plugins.PoolWait = config.Duration(3*time.Millisecond), config.Duration(5*time.Millisecond)
		c.Plugins.MemoryLimit, c.Plugins.FuelCap = 64<<20, 20_000
	}, "plugins.call_deadline", "plugins.fuel_cap", "plugins.memory_limit", "plugins.pool_wait")
	l := r.inside.Limits()
	if l.CallDeadline != 3*time.Millisecond || l.PoolWait != 5*time.Millisecond || l.MemoryLimit != 64<<20 || l.FuelCap != 20_000 {
		t.Errorf("got %+v", l)
	}
}

// A module reads the headers of the list, and one that reads another is refused.
func testHeaders(t *testing.T) {
	r := withWorkers(t, fine)
	guest := wasmtest.Guest{ScoreTypes: wasmtest.ColumnTypes, Extra: `,"request_fields":["header.x-team"]`}
	guest.Score = wasmtest.Constant(wasmtest.Field(0))
	put := func() int {
		t.Helper()
		status, _ := r.call(t, http.MethodPut, "/v1/modules/team", r.Token(), guest.Bytes())
		return status
	}
	before := put()
	r.change(t, func(c *config.Config) { c.Plugins.Headers = []string{"x-team"} }, "plugins.headers")
	statuses(t, [2]int{http.StatusUnprocessableEntity, http.StatusCreated}, before, put())
	if status, answer := r.call(t, http.MethodPut, "/v1/policies/default", r.Token(), []byte(`{"scorers":[{"use":"module:team"}]}`)); status != http.StatusCreated {
		t.Fatalf("%d %s", status, answer)
	}
	if status, answer := r.call(t, http.MethodPost, "/v1/policies/default/activate", r.Token(), []byte(`{"revision":2}`)); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	_, head := r.ask(t, "m", "X-Team", "blue")
	rows := show[struct{ Rows []struct{ Total float64 } }](t, r, "/v1/decisions/"+head.Get("x-routerd-decision")).Rows
	if len(rows) != 1 || rows[0].Total != abi.ID("blue") {
		t.Errorf("the module saw %v, want the id of blue, %v", rows, abi.ID("blue"))
	}
	r.set(func(c *config.Config) { c.Plugins.Headers = nil })
	if a := r.reload(t); a.status != http.StatusBadRequest || !strings.Contains(a.Error.Message, "plugins.headers") || !strings.Contains(a.Error.Message, "x-team") {
		t.Errorf("a list that the active policy cannot live with: %+v", a)
	}
}

// A policy whose module always traps trips, unless the guard is off.
func testGuard(t *testing.T) {
	cfg := settings(t)
	cfg.Workers.Static = []fleet.Record{record(t, "w1", fakeWorker(t, fine))}
	cfg.Models = map[string]config.Model{"m": {Tokenize: "off"}}
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	guest := wasmtest.Guest{ScoreTypes: wasmtest.ColumnTypes, Extra: `,"request_fields":["max_tokens"]`}
	guest.Score = wasmtest.Cat(wasmtest.Field(0), wasmtest.F64(2), wasmtest.Op(0x61), wasmtest.If(wasmtest.Op(wasmtest.Unreachable)), wasmtest.Column(0))
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodPut, "/v1/modules/traps", string(guest.Bytes()), http.StatusCreated},
		{http.MethodPut, "/v1/policies/default", `{"scorers":[{"use":"module:traps"}]}`, http.StatusCreated},
		{http.MethodPost, "/v1/policies/default/activate", `{"revision":2}`, http.StatusOK},
	} {
		if status, answer := r.call(t, c.method, c.path, r.Token(), []byte(c.body)); status != c.status {
			t.Fatalf("%s %s: %d %s", c.method, c.path, status, answer)
		}
	}
	state := func() string {
		t.Helper()
		for range 20 {
			r.ask(t, "m") // its max_tokens is 2
		}
		for _, rev := range show[struct {
			Revisions []struct {
				Revision int
				State    string
			}
		}](t, r, "/v1/policies/default").Revisions {
			if rev.Revision == 2 {
				return rev.State
			}
		}
		return ""
	}
	got := []string{state()}
	for _, guard := range []string{"off", "on"} {
		r.change(t, func(c *config.Config) { c.Plugins.Guard = guard }, "plugins.guard")
		got = append(got, state())
	}
	if diff := cmp.Diff([]string{"tripped", "active", "tripped"}, got); diff != "" {
		t.Errorf("guard on, off, on (-want +got)\n%s", diff)
	}
}

func testLog(t *testing.T) {
	r := startReloadable(t, settings(t))
	begins := func() string {
		t.Helper()
		before := len(r.log.String())
		r.ask(t, "nobody")
		return r.log.String()[before:]
	}
	if got := begins(); got != "" {
		t.Errorf("at info: %s", got)
	}
	r.change(t, func(c *config.Config) { c.Log.Level = "debug" }, "log.level")
	if got := begins(); !strings.Contains(got, `level=DEBUG msg="request served" component=frontend`) {
		t.Errorf("at debug: %s", got)
	}
	r.change(t, func(c *config.Config) { c.Log.Format = "json" }, "log.format")
	if got := begins(); !strings.Contains(got, `"msg":"request served","component":"frontend"`) {
		t.Errorf("as JSON: %s", got)
	}
}
