package library

import (
	"log/slog"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// hints say that the directory may have changed. They can be lost, late or
// missing altogether: only the comparison counts.
type hints struct {
	came chan struct{} // capacity 1: a hint that nobody has taken stands for more

	path    string
	watcher *fsnotify.Watcher // nil where the system gives none
	running sync.WaitGroup
}

// newHints starts listening; close ends it.
func newHints(path string, log *slog.Logger) *hints {
	h := &hints{came: make(chan struct{}, 1), path: path}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("module directory is compared periodically only", slog.Any("err", err))
		return h
	}
	h.watcher = w
	h.running.Go(func() { h.forward(w) })
	return h
}

// watch watches the directory, which may be another one since the last time.
func (h *hints) watch() {
	if h.watcher != nil {
		_ = h.watcher.Add(h.path) // a missing directory is the comparison's to report
	}
}

func (h *hints) forward(w *fsnotify.Watcher) {
	for {
		select {
		case _, ok := <-w.Events:
			if !ok {
				return
			}
		case _, ok := <-w.Errors: // events were lost
			if !ok {
				return
			}
		}
		select {
		case h.came <- struct{}{}:
		default:
		}
	}
}

func (h *hints) close() {
	if h.watcher == nil {
		return
	}
	_ = h.watcher.Close()
	h.running.Wait()
}
