package library_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/library"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/plugins/abi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loader stands in for the runtime: it refuses the manifest name "bad" and
// keeps what the cache would.
type loader struct {
	mu     sync.Mutex // guards all below
	checks int
	cached map[string]bool
	fail   error
}

func (l *loader) Check(_ context.Context, wasm []byte) (host.Checked, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checks++
	l.cached[host.Digest(wasm)] = true
	info, err := host.Inspect(wasm)
	if err != nil {
		return "", err
	}
	if info.Manifest.Name == "bad" {
		return "", &host.LoadError{Step: host.StepSelfTest, Code: abi.ETrap, Item: "trap"}
	}
	return host.CheckedConfigured, l.fail
}

func (l *loader) Forget(digest string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cached, digest)
}

// state is how often was checked and what is cached.
func (l *loader) state() (checks int, cached []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for d := range l.cached {
		cached = append(cached, d)
	}
	slices.Sort(cached)
	return l.checks, cached
}

func (l *loader) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

// shelf is a library over a store, with a module directory beside it.
type shelf struct {
	t      *testing.T
	top    string // holds all below
	path   string // of the module directory
	store  *store.Store
	loader *loader
	lib    *library.Library
	log    *testkit.Log
	reg    *prometheus.Registry
}

const debounce = 20 * time.Millisecond

func newShelf(t *testing.T) *shelf {
	t.Helper()
	top := t.TempDir()
	s := &shelf{t: t, top: top, path: filepath.Join(top, "dir"), loader: &loader{cached: map[string]bool{}}, log: &testkit.Log{}}
	s.open()
	s.must(os.Mkdir(s.path, 0o700))
	return s
}

// open is what a start does.
func (s *shelf) open() {
	s.t.Helper()
	var err error
	s.store, err = store.Open(filepath.Join(s.top, "modules"))
	s.must(err)
	s.reg = prometheus.NewRegistry()
	s.lib, err = library.New(s.store, s.loader, s.reg)
	s.must(err)
}

func (s *shelf) must(errs ...error) {
	s.t.Helper()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shelf) dir(interval time.Duration) *library.Dir {
	return library.NewDir(library.DirConfig{Path: s.path, Interval: interval, Debounce: debounce}, s.lib, slog.New(slog.NewTextHandler(s.log, nil)))
}

// load compares once.
func (s *shelf) load(d *library.Dir) {
	s.t.Helper()
	s.must(d.Load(s.t.Context()))
}

// run keeps comparing until the test ends.
func (s *shelf) run(d *library.Dir) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
}

// write puts a file into the module directory.
func (s *shelf) write(name string, body []byte) {
	s.t.Helper()
	s.must(os.WriteFile(filepath.Join(s.path, name), body, 0o600))
}

// names lists "name=module source".
func (s *shelf) names() []string {
	out := []string{}
	for _, m := range s.lib.List() {
		title := "?"
		if wasm, err := s.lib.Bytes(m.Digest); err == nil {
			if info, err := host.Inspect(wasm); err == nil {
				title = info.Manifest.Name
			}
		}
		out = append(out, fmt.Sprintf("%s=%s %s", m.Name, title, m.Source))
	}
	return out
}

func (s *shelf) status() library.Status {
	s.t.Helper()
	st, ok := s.lib.Directory()
	if !ok {
		s.t.Fatal("no module directory")
	}
	return st
}

// expect waits until the names are as wanted.
func (s *shelf) expect(want ...string) {
	s.t.Helper()
	s.until(func() string {
		if got := s.names(); !slices.Equal(got, want) {
			return fmt.Sprintf("names %v, want %v; status %+v", got, want, s.status())
		}
		return ""
	})
}

// until waits until wrong says nothing.
func (s *shelf) until(wrong func() string) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for {
		said := wrong()
		if said == "" {
			return
		}
		select {
		case <-deadline:
			s.t.Fatal(said)
		case <-tick.C:
		}
	}
}

// files lists everything of the store.
func (s *shelf) files() []string {
	s.t.Helper()
	var out []string
	s.must(filepath.WalkDir(filepath.Join(s.top, "modules"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	}))
	return out
}

// metric reads a sample.
func (s *shelf) metric(name, label string) float64 {
	s.t.Helper()
	families, err := s.reg.Gather()
	s.must(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	s.t.Fatalf("no metric %s %s", name, label)
	return 0
}

// guest is a module whose manifest has a name; different names give different
// bytes.
func guest(name string) []byte { return wasmtest.Guest{Name: name}.Bytes() }
