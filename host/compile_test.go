package host_test

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/wasmtest"
)

func childRuntime(t testing.TB, dir string) (*host.Runtime, *prometheus.Registry) {
	t.Helper()
	child, err := host.NewChild()
	if err != nil {
		t.Fatal(err)
	}
	cfg := host.DefaultConfig()
	cfg.Compiler, cfg.CacheDir = child, dir
	reg := prometheus.NewRegistry()
	r, err := host.New(cfg, slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, reg
}

// compiles reads how often a registry's runtime compiled.
func compiles(t testing.TB, reg *prometheus.Registry) uint64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "routerd_plugin_compile_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatal("no metric routerd_plugin_compile_seconds")
	return 0
}

func useOnce(t *testing.T, r *host.Runtime, wasm []byte) {
	t.Helper()
	s, err := loaded(context.Background(), r, "module:test", wasm)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := score(s, 3); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestChildCompilesOnceForTheSameBytes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	r, reg := childRuntime(t, dir)
	useOnce(t, r, good())
	useOnce(t, r, good())
	if n := compiles(t, reg); n != 1 {
		t.Errorf("compiled %d times, want 1", n)
	}
	before := compiledFile(t, dir)
	again, regAgain := childRuntime(t, dir)
	useOnce(t, again, good())
	// The engine replaces the file when it compiles.
	if !os.SameFile(before, compiledFile(t, dir)) {
		t.Error("the engine compiled again, in this process")
	}
	if n := compiles(t, regAgain); n != 0 {
		t.Errorf("compiled %d times in a new runtime over the same cache, want 0", n)
	}
	st, err := os.Stat(dir)
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("cache folder has mode %v (%v), want 0700", st.Mode().Perm(), err)
	}
}

// compiledFile is the one compiled module of a cache folder.
func compiledFile(t *testing.T, dir string) fs.FileInfo {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("compiled files: got %v (%v), want one", files, err)
	}
	st, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestDamagedCacheEntryIsCompiledAgain(t *testing.T) {
	dir := t.TempDir()
	r, _ := childRuntime(t, dir)
	useOnce(t, r, good())
	damaged := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), "ok-") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b[len(b)/2] ^= 0xff
		damaged++
		return os.WriteFile(path, b, 0o600)
	})
	if err != nil || damaged != 1 {
		t.Fatalf("damaged %d files: %v", damaged, err)
	}
	again, reg := childRuntime(t, dir)
	useOnce(t, again, good())
	if n := compiles(t, reg); n != 1 {
		t.Errorf("compiled %d times after the entry was damaged, want 1", n)
	}
}

func TestChildCarriesTheEnginesRefusal(t *testing.T) {
	// A body that type-checks nowhere: i32.add on an empty stack.
	wasm := wasmtest.Guest{Score: wasmtest.Cat(wasmtest.Op(wasmtest.I32Add))}.Bytes()
	r, _ := childRuntime(t, t.TempDir())
	le := refused(t, r, wasm, "")
	if le.Step != host.StepValidate || le.Code != "E_PARSE" || len(le.Item) > 2048 {
		t.Errorf("got %v, want step validate with E_PARSE", le)
	}
}

func TestChildNeedsACacheFolder(t *testing.T) {
	child, err := host.NewChild()
	if err != nil {
		t.Fatal(err)
	}
	cfg := host.DefaultConfig()
	cfg.Compiler = child
	if _, err := host.New(cfg, slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), "data_dir") {
		t.Errorf("got error %v, want one that names data_dir", err)
	}
}

func TestChildRefusesInputOverItsLimit(t *testing.T) {
	in := bytes.NewReader([]byte{0, 0, 0, 0, 0, 1, 0, 0})
	var out bytes.Buffer
	// Without limits: this process is the test.
	if code := host.CompileChildBody([]string{"routerd", "compile-module", t.TempDir()}, in, &out); code == 0 || out.Len() > 0 {
		t.Errorf("got exit code %d and %d bytes of answer, want a failure", code, out.Len())
	}
}
