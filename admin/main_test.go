package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/admin/admintest"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/library"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/testkit"
)

const token = "token-CANARY3-0123456789"

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

// bench is an admin API over real parts; engines and their caches are not
// there.
type bench struct {
	dir    string
	url    string
	addr   string
	server *admin.Server
	core   *core.SelectionCore
	source *host.PolicySource
	lib    *library.Library
	store  *store.Store
	log    *testkit.Log
	kv     kvs
	reg    *prometheus.Registry

	plugins *prometheus.Registry // what the plugin runtime counts

	mu       sync.Mutex
	notReady error
	last     *admin.LastReload
	reloaded admin.Reloaded
	refusal  error // of a reload
}

// Reload answers what the test has set.
func (b *bench) Reload(context.Context) (admin.Reloaded, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reloaded, b.refusal
}

// kvs is what the caches hold, by worker.
type kvs map[fleet.Worker]admin.KV

func (k kvs) Status(_ fleet.PartitionKey, w fleet.Worker, hashes bool) admin.KV {
	kv := k[w]
	if !hashes {
		kv.Hashes = nil
	}
	return kv
}

// engines stand in for what the catalog needs of them.
type engines struct{}

func (engines) Listen(catalog.Listening, func() *fleet.Record) error { return nil }
func (engines) Unlisten(fleet.PartitionKey, ...fleet.Worker)         {}
func (engines) Configured(string) int                                { return 16 }
func (engines) Ask(context.Context, fleet.Record) (catalog.Facts, error) {
	return catalog.Facts{}, errors.New("no engine")
}

func (b *bench) ready() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.notReady
}

func (b *bench) setReady(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notReady = err
}

func (b *bench) modulesDir() string { return filepath.Join(b.dir, "modules") }

func (b *bench) compiledDir() string { return filepath.Join(b.dir, "compiled") }

func (b *bench) parts(t testing.TB) (p admin.Parts) {
	t.Helper()
	discard := slog.New(slog.DiscardHandler)
	hc := host.DefaultConfig()
	hc.CallDeadline = 5 * time.Second // a crowded machine misses 10 ms
	hc.CacheDir = b.compiledDir()
	b.plugins = prometheus.NewRegistry()
	rt, err := host.New(hc, discard, b.plugins)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close() })
	modules, err := store.Open(b.modulesDir())
	if err != nil {
		t.Fatal(err)
	}
	b.store = modules
	b.source, err = host.OpenPolicySource(t.Context(), rt, modules, host.PolicyConfig{Dir: filepath.Join(b.dir, "policies")}, discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.source.Close() })
	seed := uint64(7)
	cc := core.DefaultConfig()
	cc.Seed = &seed
	b.core = core.New(cc, core.SelectionHost{}, b.source, core.NoIndex{}, discard)
	t.Cleanup(b.core.Close)
	reconciler := catalog.New(catalog.Parts{Core: b.core, Listeners: engines{}, Engines: engines{}}, discard)
	workers, err := api.Open(filepath.Join(b.dir, "workers.json"), reconciler)
	if err != nil {
		t.Fatal(err)
	}
	if skipped, err := workers.Restore(t.Context()); err != nil || len(skipped) > 0 {
		t.Fatal(skipped, err)
	}
	b.kv = kvs{}
	b.reg = prometheus.NewRegistry()
	b.lib, err = library.New(modules, rt, nil)
	if err != nil {
		t.Fatal(err)
	}
	return admin.Parts{
		Modules: b.lib, Policies: b.source, Workers: admintest.PlainWorkers{Reconciler: reconciler}, WorkerSource: workers, Drains: reconciler, Sources: catalog.NewSources(reconciler, slog.New(slog.DiscardHandler)), Partitions: b.core, Kv: b.kv,
		Decisions: b.core.Decisions(), Metrics: b.reg, Config: b, Ready: b.ready,
	}
}

func nopLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newBench(t testing.TB, change ...func(*admin.Config, *admin.Parts)) *bench {
	t.Helper()
	b := &bench{dir: t.TempDir(), log: &testkit.Log{}}
	parts := b.parts(t)
	cfg := admin.DefaultConfig()
	cfg.Token = token
	for _, c := range change {
		c(&cfg, &parts)
	}
	var err error
	b.server, err = admin.New(cfg, parts, slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.addr = ln.Addr().String()
	b.url = "http://" + b.addr
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.server.Run(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return b
}

// stored puts a module that the API would refuse: one that loaded when it was
// put.
func (b *bench) stored(t testing.TB, name string, wasm []byte) {
	t.Helper()
	if _, _, err := b.store.Put(name, bytes.NewReader(wasm), ""); err != nil {
		t.Fatal(err)
	}
}

// answer is what the API said.
type answer struct {
	status int
	header http.Header
	body   string
}

// failure is the error of an answer.
type failure struct {
	Code    string
	Message string
	Details struct{ Step, Item, Allowed string }
}

func (a answer) failure(t testing.TB) failure {
	t.Helper()
	var got struct{ Error failure }
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || got.Error.Code == "" {
		t.Fatalf("status %d with a body that is no error: %q", a.status, a.body)
	}
	return got.Error
}

// into reads an answer that must have the status.
func (a answer) into(t testing.TB, status int, v any) {
	t.Helper()
	if a.status != status {
		t.Fatalf("got status %d, want %d: %s", a.status, status, a.body)
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
}

// refused checks an error's status, code and a part of what it says.
func (a answer) refused(t testing.TB, status int, code, part string) {
	t.Helper()
	f := a.failure(t)
	if a.status != status || f.Code != code || !strings.Contains(a.body, part) {
		t.Errorf("got %d %q %s, want %d %q with %q", a.status, f.Code, a.body, status, code, part)
	}
}

// call sends a body of text, bytes or a value as JSON, with the token.
func (b *bench) call(t testing.TB, method, path string, body any) answer {
	t.Helper()
	return b.callWith(t, method, path, body, "Bearer "+token)
}

func (b *bench) callWith(t testing.TB, method, path string, body any, authorization string) answer {
	t.Helper()
	var r io.Reader
	switch v := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(v)
	case []byte:
		r = bytes.NewReader(v)
	default:
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, r)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	return send(t, req)
}

func send(t testing.TB, req *http.Request) answer {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// worker adds a ready worker.
func (b *bench) worker(t testing.TB, rec fleet.Record) {
	t.Helper()
	b.call(t, "PUT", "/v1/workers/"+rec.Name, rec).into(t, http.StatusCreated, nil)
}

func (b *bench) LastReload() (admin.LastReload, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		return admin.LastReload{}, false
	}
	return *b.last, true
}
