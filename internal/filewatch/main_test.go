package filewatch_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/routerd/routerd/internal/filewatch"
	"github.com/routerd/routerd/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	debounce = 20 * time.Millisecond
	never    = time.Hour // a poll that is left to hints
)

// watched is a folder with a watcher of files in it.
type watched struct {
	t     *testing.T
	dir   string
	log   *testkit.Log
	calls atomic.Int64 // of changed
	*filewatch.Watcher
}

// watch makes a watcher of files of a new folder, which set fills before.
func watch(t *testing.T, poll time.Duration, set func(*watched), names ...string) *watched {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	w := &watched{t: t, dir: dir, log: &testkit.Log{}}
	w.must(err)
	set(w)
	var paths []string
	for _, n := range names {
		paths = append(paths, w.path(n))
	}
	w.Watcher = filewatch.New(paths, filewatch.Options{
		Debounce: debounce, Poll: poll, Known: filewatch.Look(paths...), Log: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	return w
}

// run runs the watcher until the test ends; changed may be nil.
func (w *watched) run(changed func()) *watched {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- w.Run(ctx, func() {
			w.calls.Add(1)
			if changed != nil {
				changed()
			}
		})
	}()
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		if w.t.Failed() {
			w.t.Logf("the log:\n%s", w.log)
		}
	})
	return w
}

func (w *watched) path(name string) string { return filepath.Join(w.dir, name) }

func (w *watched) must(errs ...error) {
	w.t.Helper()
	if err := errors.Join(errs...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) write(name, text string) {
	w.t.Helper()
	w.must(os.WriteFile(w.path(name), []byte(text), 0o600))
}

func (w *watched) link(to, name string) {
	w.t.Helper()
	w.must(os.Symlink(to, w.path(name)))
}

func (w *watched) rename(from, to string) {
	w.t.Helper()
	w.must(os.Rename(w.path(from), w.path(to)))
}

// called waits until changes were told n times, and then some time for one more.
func (w *watched) called(n int64) {
	w.t.Helper()
	testkit.Until(w.t, "a change is told", func() bool { return w.calls.Load() >= n })
	w.quiet(n)
}

// quiet is some time in which no change is told.
func (w *watched) quiet(n int64) {
	w.t.Helper()
	<-time.After(5 * debounce)
	if got := w.calls.Load(); got != n {
		w.t.Fatalf("%d changes were told, want %d", got, n)
	}
}
