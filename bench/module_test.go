package bench_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/routerd/routerd/host/pack"
)

// buildKVAware builds and packs the Go-written kv-aware plugin; the file ends
// with the test.
func buildKVAware(tb testing.TB) (file string) {
	tb.Helper()
	const source = "../plugins/examples/kv-aware"
	file = filepath.Join(tb.TempDir(), "kv-aware.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", file, "./"+source)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("build kv-aware: %v\n%s", err, out)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(source, "manifest.json"))
	if err != nil {
		tb.Fatal(err)
	}
	wasm, _, err := pack.Pack(context.Background(), raw, manifest, nil)
	if err != nil {
		tb.Fatalf("pack kv-aware: %v", err)
	}
	if err := os.WriteFile(file, wasm, 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}
