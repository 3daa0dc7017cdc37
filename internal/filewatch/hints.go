package filewatch

import (
	"log/slog"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// hints say that a file may have changed. Owned by Run.
type hints struct {
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil where the system gives none
	at      places
	said    bool // that not all folders can be watched
}

// newHints starts listening; close ends it.
func newHints(log *slog.Logger) *hints {
	h := &hints{log: log}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("changes of files are seen by periodic comparison only", "err", err)
		return h
	}
	h.watcher = w
	return h
}

// events and lost are nil, and never ready, where the system gives no hints.
func (h *hints) events() <-chan fsnotify.Event {
	if h.watcher == nil {
		return nil
	}
	return h.watcher.Events
}

func (h *hints) lost() <-chan error {
	if h.watcher == nil {
		return nil
	}
	return h.watcher.Errors
}

// watch listens at the folders that count now. To be called before each look:
// what changes between the two is then a hint for the next.
func (h *hints) watch(paths []string) {
	if h.watcher == nil {
		return
	}
	was, now := h.at, placesOf(paths)
	h.at = now
	for folder := range was.folders {
		if !now.folders[folder] {
			_ = h.watcher.Remove(folder) // gone by itself when the folder has
		}
	}
	for folder := range now.folders {
		// Also one that was added before: another folder may have its name now.
		if err := h.watcher.Add(folder); err != nil && !h.said {
			h.said = true
			h.log.Warn("folder not watched: its changes are seen by periodic comparison only", "path", folder, "err", err)
		}
	}
}

// concerns tells whether an event may be about one of the files.
func (h *hints) concerns(e fsnotify.Event) bool {
	return h.at.names[filepath.Base(e.Name)] || h.at.folders[filepath.Clean(e.Name)]
}

func (h *hints) close() {
	if h.watcher != nil {
		_ = h.watcher.Close() // waits for its goroutine
	}
}
