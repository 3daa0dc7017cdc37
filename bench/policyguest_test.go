package bench_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/pack"
	"github.com/routerd/routerd/plugins/abi"
)

// packC packs a module of testdata/kvaware.c; the file ends with the test.
func packC(tb testing.TB, kind string) (file string) {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "kvaware-"+kind+".wasm"))
	if err != nil {
		tb.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join("testdata", "kvaware.json"))
	if err != nil {
		tb.Fatal(err)
	}
	wasm, _, err := pack.Pack(context.Background(), raw, manifest, nil)
	if err != nil {
		tb.Fatalf("pack the %s guest: %v", kind, err)
	}
	file = filepath.Join(tb.TempDir(), kind+".wasm")
	if err := os.WriteFile(file, wasm, 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// guests makes stages of modules that are files.
type guests struct {
	runtime *host.Runtime
	wasm    map[string][]byte // by the name in "module:NAME"
}

var _ policy.StageSource = (*guests)(nil)

func newGuests(tb testing.TB) *guests {
	tb.Helper()
	cfg := host.DefaultConfig()
	cfg.CallDeadline = time.Second // a crowded machine may hold a call up for longer than 10 ms
	rt, err := host.New(cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := rt.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &guests{runtime: rt, wasm: map[string][]byte{}}
}

// with adds the module in a file.
func (g *guests) with(name, file string) *guests {
	wasm, err := os.ReadFile(file)
	if err == nil {
		g.wasm["module:"+name] = wasm
	}
	return g // one that cannot be read is refused as a stage
}

// Stage makes a stage of a module.
func (g *guests) Stage(ctx context.Context, kind abi.Kind, use string, config json.RawMessage) (policy.Stage, string, error) {
	wasm := g.wasm[use]
	digest := host.Digest(wasm)
	s, err := g.runtime.Stage(ctx, kind, use, wasm, digest, config)
	return s, digest, err
}
