package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

func TestMain(m *testing.M) {
	host.RunCompileChild() // the test binary is its own compile child
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

// client leaves no idle connections behind.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func engine(t *testing.T, name string, change func(*sim.Config)) *sim.Engine {
	t.Helper()
	return simtest.Start(t, func(c *sim.Config) {
		c.Name, c.Model = name, "m"
		if change != nil {
			change(c)
		}
	})
}

func settings(t *testing.T, engines ...*sim.Engine) config.Config {
	t.Helper()
	cfg := config.DefaultConfig()
	cfg.DataDir = t.TempDir()
	cfg.Frontend.Listen, cfg.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	for i, e := range engines {
		rec, err := fleet.Record{
			NoHealthCheck: true, Name: fmt.Sprintf("w%d", i+1), URL: e.URL(), Model: "m", KVEvents: e.EventEndpoints(), Replay: e.ReplayEndpoints(),
		}.Normalised()
		if err != nil {
			t.Fatal(err)
		}
		cfg.Workers.Static = append(cfg.Workers.Static, rec)
	}
	return cfg
}

func start(t *testing.T, cfg config.Config) *app.App {
	t.Helper()
	a, err := app.Start(t.Context(), cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	waitForWorkers(t, a)
	return a
}

// waitForWorkers waits until all workers are ready: the start does so only
// briefly, and the machine may be busy.
func waitForWorkers(t *testing.T, a *app.App) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		waiting := ""
		for name, lifecycle := range lifecycles(t, a) {
			if lifecycle != "ready" {
				waiting = name
			}
		}
		if waiting == "" {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s was never ready", waiting)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func lifecycles(t *testing.T, a *app.App) map[string]string {
	t.Helper()
	var got struct {
		Workers []struct {
			Name      string `json:"name"`
			Lifecycle string `json:"lifecycle"`
		} `json:"workers"`
	}
	if code := admin(t, a, "/v1/workers", &got); code != http.StatusOK {
		t.Fatalf("workers: status %d", code)
	}
	states := map[string]string{}
	for _, w := range got.Workers {
		states[w.Name] = w.Lifecycle
	}
	return states
}

// complete asks for a completion and returns the worker that answered.
func complete(t *testing.T, a *app.App, prompt string) (worker string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":4}`, prompt)
	resp, err := client.Post(a.FrontendURL()+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", resp.StatusCode, answer)
	}
	return resp.Header.Get("x-routerd-worker")
}

func admin(t *testing.T, a *app.App, path string, out any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.AdminURL()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.Token())
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil {
		t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(answer, out); err != nil {
			t.Fatalf("%v in %s", err, answer)
		}
	}
	return resp.StatusCode
}

func TestARequestGoesToTheWorkerThatHoldsItsPrefix(t *testing.T) {
	a := start(t, settings(t, engine(t, "e1", nil), engine(t, "e2", nil), engine(t, "e3", nil)))
	defer func() {
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for topic := range 6 {
		text := strings.Repeat(fmt.Sprintf("topic %d ", topic), 100)
		first := complete(t, a, text+"one")
		waitForBlocks(t, a, first)
		for _, more := range []string{"two", "three"} {
			if got := complete(t, a, text+more); got != first {
				t.Errorf("topic %d went to %s, its prefix is on %s", topic, got, first)
			}
		}
	}
}

// waitForBlocks waits until the index has at least the blocks that the engine
// published with its last answer.
func waitForBlocks(t *testing.T, a *app.App, worker string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	last, same := -1, 0
	for same < 3 {
		var got struct {
			Partitions []struct {
				Ranks []struct {
					Name string `json:"name"`
					KV   struct {
						Blocks map[string]int `json:"blocks"`
					} `json:"kv"`
				} `json:"ranks"`
			} `json:"partitions"`
		}
		admin(t, a, "/v1/partitions", &got)
		for _, r := range got.Partitions[0].Ranks {
			if r.Name != worker {
				continue
			}
			if n := r.KV.Blocks["device"]; n > 0 && n == last {
				same++
			} else {
				last, same = n, 0
			}
		}
		select {
		case <-deadline:
			t.Fatalf("no blocks of %s arrived", worker)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestReadinessTellsOfTheDrainAndStopReturnsErrGrace(t *testing.T) {
	e := engine(t, "e1", func(c *sim.Config) { c.DecodePerToken = 20 * time.Millisecond })
	cfg := settings(t, e)
	cfg.Frontend.Grace = config.Duration(200 * time.Millisecond)
	a := start(t, cfg)
	if got := admin(t, a, "/readyz", nil); got != http.StatusOK {
		t.Errorf("readyz %d after the start", got)
	}
	resp, err := client.Post(a.FrontendURL()+"/v1/completions", "application/json",
		strings.NewReader(`{"model":"m","prompt":"x","max_tokens":100000,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- a.Stop(context.Background()) }()
	for admin(t, a, "/readyz", nil) != http.StatusServiceUnavailable {
		select {
		case err := <-stopped:
			t.Fatalf("stopped before readiness fell: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := <-stopped; !errors.Is(err, app.ErrGrace) {
		t.Errorf("got %v, want ErrGrace", err)
	}
}

func TestOneProcessOwnsTheDataDirectory(t *testing.T) {
	cfg := settings(t)
	a := start(t, cfg)
	if _, err := app.Start(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "in use by another routerd") {
		t.Errorf("a second start gave %v", err)
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	again := start(t, cfg)
	if err := again.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestATakenPortNamesItsFlag(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	for _, key := range []string{"frontend.listen", "admin.listen"} {
		cfg := settings(t)
		if key == "admin.listen" {
			cfg.Admin.Listen = ln.Addr().String()
		} else {
			cfg.Frontend.Listen = ln.Addr().String()
		}
		if _, err := app.Start(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--"+key) {
			t.Errorf("%s taken: got %v", key, err)
		}
	}
}

func TestADuplicateStaticWorkerStopsTheStart(t *testing.T) {
	cfg := settings(t)
	for range 2 {
		rec, err := fleet.Record{NoHealthCheck: true, Name: "w1", URL: "http://127.0.0.1:1"}.Normalised()
		if err != nil {
			t.Fatal(err)
		}
		cfg.Workers.Static = append(cfg.Workers.Static, rec)
	}
	if _, err := app.Start(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "workers.static") {
		t.Errorf("got %v", err)
	}
}

func TestTheTokenFileIsMadeForTheOwnerAlone(t *testing.T) {
	cfg := settings(t)
	a := start(t, cfg)
	defer func() { _ = a.Stop(t.Context()) }()
	info, err := os.Stat(cfg.DataDir + "/admin.token")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestAnEngineThatTokenisesNoMessagesIsShown(t *testing.T) {
	url := serveWorker(t, func() {})
	cfg := settings(t)
	rec, err := fleet.Record{NoHealthCheck: true, Name: "w1", URL: url, Model: "m", BlockSize: 16}.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Workers.Static = []fleet.Record{rec}
	a := start(t, cfg)
	defer func() { _ = a.Stop(t.Context()) }()
	resp, err := client.Post(a.FrontendURL()+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"a long enough question"}]}`))
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, status %d", err, resp.StatusCode)
	}
	var got struct {
		Lifecycle string   `json:"lifecycle"`
		Reasons   []string `json:"reasons"`
	}
	admin(t, a, "/v1/workers/w1", &got)
	if got.Lifecycle != "ready" || len(got.Reasons) != 1 || got.Reasons[0] != "tokenize_unsupported" {
		t.Errorf("got %+v", got)
	}
}

// What a removed policy was counted by goes with it.
func TestTheSeriesOfARemovedPolicyGo(t *testing.T) {
	r := withWorkers(t, fine)
	r.change(t, func(c *config.Config) { c.Models = map[string]config.Model{"m": {Policy: "default", Tokenize: "off"}} }, "models.m")
	series := func() int {
		t.Helper()
		_, body := r.call(t, http.MethodGet, "/metrics", r.Token(), nil)
		return strings.Count(string(body), `policy="side"`)
	}
	for _, c := range []struct{ method, path, body string }{
		{http.MethodPut, "/v1/policies/side", `{"scorers":[{"use":"builtin:least-load"}]}`},
		{http.MethodPost, "/v1/policies/side/activate", `{"revision":1}`},
	} {
		if status, answer := r.call(t, c.method, c.path, r.Token(), []byte(c.body)); status >= http.StatusMultipleChoices {
			t.Fatalf("%d %s", status, answer)
		}
	}
	route := func(policy string) {
		t.Helper()
		r.change(t, func(c *config.Config) { c.Models = map[string]config.Model{"m": {Policy: policy, Tokenize: "off"}} }, "models.m.policy")
	}
	route("side")
	r.ask(t, "m")
	if series() == 0 {
		t.Fatal("the policy that decided has no series")
	}
	route("default")
	if status, answer := r.call(t, http.MethodDelete, "/v1/policies/side", r.Token(), nil); status >= http.StatusMultipleChoices {
		t.Fatalf("%d %s", status, answer)
	}
	if n := series(); n != 0 {
		t.Errorf("%d series of the removed policy are left", n)
	}
}
