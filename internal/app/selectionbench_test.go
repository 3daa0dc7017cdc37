package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/selection"
)

// selectionBench is a selection service over a real core and catalog; engines and
// their caches are not there.
type selectionBench struct {
	url        string
	core       *core.SelectionCore
	reconciler *catalog.Reconciler
	source     *api.Source
	engines    *silentEngines
}

// silentEngines write down who listens to them and tell no block size but the
// one that is set.
type silentEngines struct {
	mu     sync.Mutex
	told   []string
	sizes  map[string]int // by URL
	probed int
}

func (e *silentEngines) Listen(l catalog.Listening, _ func() *fleet.Record) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, fmt.Sprintf("listen %s %s %s", l.Worker, l.Endpoint, l.Replay))
	return nil
}

func (e *silentEngines) Unlisten(_ fleet.PartitionKey, ranks ...fleet.Worker) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range ranks {
		e.told = append(e.told, "unlisten "+w.String())
	}
}

func (e *silentEngines) Configured(string) int { return 0 }

func (e *silentEngines) Ask(_ context.Context, rec fleet.Record) (catalog.Facts, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.probed++
	if n := e.sizes[rec.URL]; n != 0 {
		return catalog.Facts{BlockSize: n}, nil
	}
	return catalog.Facts{}, errors.New("no engine")
}

// since gives what was told since the last call, sorted.
func (e *silentEngines) since() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	told := e.told
	e.told = nil
	slices.Sort(told)
	return append([]string{}, told...)
}

type noDump struct{}

func (noDump) Dump(io.Writer) error { return nil }

func newSelectionBench(t *testing.T) *selectionBench {
	t.Helper()
	dir, discard := t.TempDir(), slog.New(slog.DiscardHandler)
	rt, err := host.New(host.DefaultConfig(), discard, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close() })
	modules, err := store.Open(filepath.Join(dir, "modules"))
	if err != nil {
		t.Fatal(err)
	}
	policies, err := host.OpenPolicySource(t.Context(), rt, modules, host.PolicyConfig{Dir: filepath.Join(dir, "policies")}, discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = policies.Close() })
	b := &selectionBench{engines: &silentEngines{sizes: map[string]int{}}}
	b.core = core.New(core.DefaultConfig(), core.SelectionHost{}, policies, core.NoIndex{}, discard)
	t.Cleanup(b.core.Close)
	b.reconciler = catalog.New(catalog.Parts{Core: b.core, Listeners: b.engines, Engines: b.engines}, discard)
	b.source, err = api.Open(filepath.Join(dir, "workers.json"), b.reconciler)
	if err != nil {
		t.Fatal(err)
	}
	parts := selection.Parts{Core: b.core, Workers: app.SelectionWorkers(b.reconciler, b.source), Index: noDump{}}
	srv, err := selection.New(selection.DefaultConfig(), parts, discard, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	b.url = serveSelection(t, srv)
	return b
}

func serveSelection(t *testing.T, srv *selection.Server) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		if err := errors.Join(srv.Shutdown(context.Background()), <-served); err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

// call makes one call and returns the status and the answer.
func (b *selectionBench) call(t *testing.T, method, path, body string) (int, map[string]any) {
	t.Helper()
	status, text := b.raw(t, method, path, body)
	var v map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s %s: %d %q: %v", method, path, status, text, err)
	}
	return status, v
}

func (b *selectionBench) raw(t *testing.T, method, path, body string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, text
}

// want makes a call whose status is given and returns its answer.
func (b *selectionBench) want(t *testing.T, status int, method, path, body string) map[string]any {
	t.Helper()
	got, v := b.call(t, method, path, body)
	if got != status {
		t.Errorf("%s %s %s: %d %v, want %d", method, path, body, got, v, status)
	}
	return v
}

// refused checks that a call is refused with a status and names a field.
func (b *selectionBench) refused(t *testing.T, status int, item, method, path, body string) {
	t.Helper()
	v := b.want(t, status, method, path, body)
	failure, _ := v["error"].(map[string]any)
	if message, _ := failure["message"].(string); !strings.Contains(message, item) || failure["code"] == "internal" {
		t.Errorf("%s %s: %v does not name %q", method, path, v, item)
	}
}

func wantFields(t *testing.T, got map[string]any, want map[string]any) {
	t.Helper()
	part := map[string]any{}
	for field := range want {
		if v, ok := got[field]; ok {
			part[field] = v
		}
	}
	if diff := cmp.Diff(want, part); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func texts(s ...string) []any {
	out := make([]any, len(s))
	for i := range s {
		out[i] = s[i]
	}
	return out
}
