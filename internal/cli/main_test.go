package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
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
	"github.com/routerd/routerd/internal/cli"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

// router is an admin API over real parts in a data folder; engines are not
// there.
type router struct {
	dir, url string
	core     *core.SelectionCore
	policies *host.PolicySource
	changed  []string // by the next reload
	refusal  error    // of it
}

// Reload answers what the test has set.
func (r *router) Reload(context.Context) (admin.Reloaded, error) {
	return admin.Reloaded{Changed: r.changed, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, r.refusal
}

type nothing struct{}

func (nothing) Status(fleet.PartitionKey, fleet.Worker, bool) admin.KV { return admin.KV{} }
func (nothing) Listen(catalog.Listening, func() *fleet.Record) error   { return nil }
func (nothing) Unlisten(fleet.PartitionKey, ...fleet.Worker)           {}
func (nothing) Configured(string) int                                  { return 16 }
func (nothing) Ask(context.Context, fleet.Record) (catalog.Facts, error) {
	return catalog.Facts{}, errors.New("no engine")
}

func start(t *testing.T) *router {
	t.Helper()
	r := &router{dir: t.TempDir()}
	log := slog.New(slog.DiscardHandler)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	hc := host.DefaultConfig()
	hc.CallDeadline = 5 * time.Second // a crowded machine misses 10 ms
	rt, err := host.New(hc, log, nil)
	must(err)
	t.Cleanup(func() { _ = rt.Close() })
	modules, err := store.Open(filepath.Join(r.dir, "modules"))
	must(err)
	lib, err := library.New(modules, rt, nil)
	must(err)
	policies, err := host.OpenPolicySource(t.Context(), rt, modules, host.PolicyConfig{Dir: filepath.Join(r.dir, "policies")}, log)
	must(err)
	t.Cleanup(func() { _ = policies.Close() })
	r.policies = policies
	r.core = core.New(core.DefaultConfig(), core.SelectionHost{}, policies, core.NoIndex{}, log)
	reconciler := catalog.New(catalog.Parts{Core: r.core, Listeners: nothing{}, Engines: nothing{}}, log)
	workers, err := api.Open(filepath.Join(r.dir, "workers.json"), reconciler)
	must(err)
	cfg := admin.DefaultConfig()
	cfg.Token, err = admin.LoadOrMakeToken(filepath.Join(r.dir, "admin.token"))
	must(err)
	srv, err := admin.New(cfg, admin.Parts{
		Modules: lib, Policies: policies, Workers: admintest.PlainWorkers{Reconciler: reconciler}, WorkerSource: workers, Drains: reconciler, Sources: catalog.NewSources(reconciler, slog.New(slog.DiscardHandler)), Partitions: r.core, Kv: nothing{},
		Decisions: r.core.Decisions(), Metrics: prometheus.NewRegistry(), Config: r, Ready: func() error { return nil },
	}, log)
	must(err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	r.url = "http://" + ln.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- srv.Run(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r
}

func root() *cobra.Command {
	c := &cobra.Command{Use: "routerd", SilenceUsage: true, SilenceErrors: true}
	c.AddCommand(cli.Commands()...)
	return c
}

// command runs a command line that is split at spaces; each %q of it is
// replaced by an argument of its own.
func command(t *testing.T, stdin, line string, args ...string) (string, error) {
	t.Helper()
	words := strings.Fields(line)
	for i, w := range words {
		for strings.Contains(words[i], "%q") && len(args) > 0 {
			words[i] = strings.Replace(w, "%q", args[0], 1)
			args = args[1:]
		}
	}
	c := root()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetIn(strings.NewReader(stdin))
	c.SetArgs(words)
	err := c.Execute()
	return out.String(), err
}

// run runs a command line against the router; it must succeed.
func (r *router) run(t *testing.T, line string, args ...string) string {
	t.Helper()
	out, err := command(t, "", line+" --admin-url "+r.url+" --data-dir "+r.dir, args...)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return out
}

// fails runs a command line that must fail and returns the error.
func (r *router) fails(t *testing.T, line string, args ...string) error {
	t.Helper()
	out, err := command(t, "", line+" --admin-url "+r.url+" --data-dir "+r.dir, args...)
	if err == nil {
		t.Fatalf("%s succeeded: %s", line, out)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: the error has lines: %q", line, err)
	}
	return err
}

func (r *router) file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// has compares output with the cells that each line must hold.
func has(t *testing.T, out string, lines ...string) {
	t.Helper()
	got := strings.Split(strings.TrimRight(out, "\n"), "\n")
	for i, want := range lines {
		line := ""
		if i < len(got) {
			line = strings.Join(strings.Fields(got[i]), " ")
		}
		if !strings.HasPrefix(line, want) {
			t.Errorf("line %d is %q, want %q…\n%s", i, line, want, out)
		}
	}
	if len(got) != len(lines) {
		t.Errorf("%d lines, want %d\n%s", len(got), len(lines), out)
	}
}

// contains looks for lines that hold cells side by side, in order.
func contains(t *testing.T, out string, lines ...string) {
	t.Helper()
	next := 0
	for line := range strings.Lines(out) {
		if next < len(lines) && hasCells(line, lines[next]) {
			next++
		}
	}
	if next < len(lines) {
		t.Errorf("no line with %q\n%s", lines[next], out)
	}
}

// hasCells tells whether a line holds cells side by side.
func hasCells(line, cells string) bool {
	return strings.Contains(strings.Join(strings.Fields(line), " "), cells)
}

func (r *router) book(t *testing.T, id string) {
	t.Helper()
	_, err := r.core.Select(t.Context(), &core.Request{
		Kind: core.Book, SelectionID: id, RequestID: id, Surface: "test", Partition: fleet.PartitionKey{Model: "m", Group: "default"},
		Prompt: core.Prompt{Count: 32},
	})
	if err != nil {
		t.Fatal(fmt.Errorf("book: %w", err))
	}
}

func (r *router) LastReload() (admin.LastReload, bool) { return admin.LastReload{}, false }
