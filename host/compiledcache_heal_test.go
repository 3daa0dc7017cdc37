package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
)

// oneFile is the only file that a pattern matches below a folder.
func oneFile(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %s: got %v (%v), want one", pattern, files, err)
	}
	return files[0]
}

// counted reads a counter of a registry.
func counted(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

const rebuilds = "routerd_plugin_cache_rebuilds_total"

func edit(change func(b []byte) []byte) func(t *testing.T, file string) {
	return func(t *testing.T, file string) {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, change(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// instead puts something that is no file in a file's place.
func instead(put func(file string) error) func(t *testing.T, file string) {
	return func(t *testing.T, file string) {
		t.Helper()
		if err := errors.Join(os.Remove(file), put(file)); err != nil {
			t.Fatal(err)
		}
	}
}

// What is in the folder is executed. Whatever is not what was put there is made
// again; the engine never sees it.
func TestADamagedCacheHeals(t *testing.T) {
	const form, marker = "wazero-*/*", "ok-*"
	for _, c := range []struct {
		name, what string
		damage     func(t *testing.T, file string)
		rebuilt    float64
	}{
		{"one bit of the code", form, edit(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), 1},
		{"the engine's own header", form, edit(func(b []byte) []byte { b[0] = 'X'; return b }), 1},
		{"another version of the engine", form, edit(func(b []byte) []byte { b[8] ^= 3; return b }), 1},
		{"a huge number of functions", form, edit(func(b []byte) []byte {
			at := 7 + int(b[6])
			copy(b[at:], "\xff\xff\xff\xff")
			return b
		}), 1},
		{"cut", form, edit(func(b []byte) []byte { return b[:len(b)-1] }), 1},
		{"longer", form, edit(func(b []byte) []byte { return append(b, 0) }), 1},
		{"empty", form, edit(func([]byte) []byte { return nil }), 1},
		{"foreign bytes", form, edit(func(b []byte) []byte { return []byte(strings.Repeat("#", len(b))) }), 1},
		{"gone", form, instead(func(string) error { return nil }), 1},
		{"a folder", form, instead(func(f string) error { return os.Mkdir(f, 0o700) }), 1},
		{"a FIFO", form, instead(func(f string) error { return syscall.Mkfifo(f, 0o600) }), 1},
		{"a link to itself", form, instead(func(f string) error { return os.Symlink(f, f) }), 1},
		{"no marker", marker, instead(func(string) error { return nil }), 0},
		{"an empty marker", marker, edit(func([]byte) []byte { return nil }), 1},
		{"a marker of an older version", marker, edit(func([]byte) []byte { return []byte("file\nsha256:00") }), 1},
		{"a marker that leads out", marker, edit(func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"file":"`, `"file":"../`, 1))
		}), 1},
		{"the marker of another key", marker, edit(func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"key":"`, `"key":"0`, 1))
		}), 1},
		{"a marker that is a FIFO", marker, instead(func(f string) error { return syscall.Mkfifo(f, 0o600) }), 1},
		{"a marker that is a folder", marker, instead(func(f string) error { return os.Mkdir(f, 0o700) }), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			first, _ := cacheRuntime(t, dir)
			useOnce(t, first, good())
			c.damage(t, oneFile(t, dir, c.what))
			again, reg := cacheRuntime(t, dir)
			useOnce(t, again, good())
			if n, healed := compiles(t, reg), counted(t, reg, rebuilds); n != 1 || healed != c.rebuilt {
				t.Errorf("compiled %d times and counted %v rebuilds, want 1 and %v", n, healed, c.rebuilt)
			}
			third, regThird := cacheRuntime(t, dir)
			useOnce(t, third, good())
			if n, healed := compiles(t, regThird), counted(t, regThird, rebuilds); n != 0 || healed != 0 {
				t.Errorf("after it healed: compiled %d times, %v rebuilds, want none", n, healed)
			}
			if got, want := inCache(t, dir), "1 markers, 1 modules"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// cacheRuntime has a cache folder and compiles in this process.
func cacheRuntime(t testing.TB, dir string, change ...func(*host.Config)) (*host.Runtime, *prometheus.Registry) {
	t.Helper()
	cfg := host.DefaultConfig()
	cfg.CacheDir, cfg.CallDeadline = dir, 5*time.Second
	for _, c := range change {
		c(&cfg)
	}
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

// compilerFunc is a compiler of one function.
type compilerFunc func(ctx context.Context, original, rewritten []byte, dir string) error

func (f compilerFunc) Compile(ctx context.Context, original, rewritten []byte, dir string) error {
	return f(ctx, original, rewritten, dir)
}

func TestAFullDiskIsNoFaultOfTheModule(t *testing.T) {
	dir := t.TempDir()
	full := true
	r, _ := cacheRuntime(t, dir, func(c *host.Config) {
		c.Compiler = compilerFunc(func(ctx context.Context, original, rewritten []byte, dir string) error {
			if full {
				return fmt.Errorf("write compiled module: %w: %w", host.ErrCompiledCache, syscall.ENOSPC)
			}
			return host.InProcess{}.Compile(ctx, original, rewritten, dir)
		})
	})
	_, err := loaded(t.Context(), r, "module:test", good())
	var le *host.LoadError
	if !errors.Is(err, host.ErrCompiledCache) || errors.As(err, &le) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v, want the folder's fault", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "compiling-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	full = false
	useOnce(t, r, good())
}

// A folder that takes nothing more still serves what it has.
func TestAFolderThatTakesNothingServesWhatItHas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	first, _ := cacheRuntime(t, dir)
	useOnce(t, first, good())
	r, reg := cacheRuntime(t, dir, func(c *host.Config) {
		c.Compiler = compilerFunc(func(context.Context, []byte, []byte, string) error {
			return fmt.Errorf("open compiled cache: %w: %w", host.ErrCompiledCache, syscall.EROFS)
		})
	})
	useOnce(t, r, good())
	if n := compiles(t, reg); n != 0 {
		t.Errorf("compiled %d times, want 0", n)
	}
	if _, err := loaded(t.Context(), r, "module:test", numbered(1)); !errors.Is(err, host.ErrCompiledCache) {
		t.Errorf("got %v, want the folder's fault", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := loaded(t.Context(), r, "module:test", numbered(2)); !errors.Is(err, host.ErrCompiledCache) {
		t.Errorf("without the folder: got %v, want its fault", err)
	}
}

func TestAFileWhereTheCacheFolderBelongsIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cache")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := host.DefaultConfig()
	cfg.CacheDir = file
	if _, err := host.New(cfg, slog.New(slog.DiscardHandler), nil); !errors.Is(err, host.ErrCompiledCache) {
		t.Errorf("got %v, want the folder's fault", err)
	}
	// In a child the folder's fault is told by the exit code.
	child, err := host.NewChild()
	if err != nil {
		t.Fatal(err)
	}
	rewritten := Guest{}.Bytes()
	if err := child.Compile(t.Context(), good(), rewritten, file); !errors.Is(err, host.ErrCompiledCache) {
		t.Errorf("from the child: got %v, want the folder's fault", err)
	}
}

// What the cache has is loaded while another module compiles.
func TestALoadFromTheCacheWaitsForNoCompile(t *testing.T) {
	dir := t.TempDir()
	first, _ := cacheRuntime(t, dir)
	useOnce(t, first, good())
	compiling, finish := make(chan struct{}), make(chan struct{})
	r, _ := cacheRuntime(t, dir, func(c *host.Config) {
		c.Compiler = compilerFunc(func(ctx context.Context, original, rewritten []byte, dir string) error {
			close(compiling)
			<-finish
			return host.InProcess{}.Compile(ctx, original, rewritten, dir)
		})
	})
	done := make(chan error)
	go func() {
		s, err := loaded(context.Background(), r, "module:slow", numbered(1))
		if err == nil {
			err = s.Close()
		}
		done <- err
	}()
	<-compiling
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := loaded(ctx, r, "module:test", good())
	if err != nil {
		t.Errorf("a module that is compiled already: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
	// What is not there waits for the compiler, as long as the caller does.
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := loaded(gone, r, "module:other", numbered(2)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want cancelled", err)
	}
	close(finish)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestForgottenModulesLeaveNoCompiledForm(t *testing.T) {
	dir := t.TempDir()
	r, reg := cacheRuntime(t, dir)
	useOnce(t, r, numbered(0))
	useOnce(t, r, numbered(1))
	r.Forget(host.Digest(numbered(0)))
	if got, want := inCache(t, dir), "1 markers, 1 modules"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	useOnce(t, r, numbered(1))
	if n := compiles(t, reg); n != 2 {
		t.Errorf("compiled %d times, want 2", n)
	}
}
