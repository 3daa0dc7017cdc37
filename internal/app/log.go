package app

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/routerd/routerd/internal/config"
)

// Log is the daemon's log. Its level and form can change while it is written;
// loggers made from it follow. Safe for concurrent use.
type Log struct {
	*slog.Logger
	out  io.Writer
	root *atomic.Pointer[slog.Handler]
}

// NewLog makes the daemon's log from a checked configuration. Lines go to w one
// at a time.
func NewLog(cfg config.Log, w io.Writer) *Log {
	root := &atomic.Pointer[slog.Handler]{}
	l := &Log{Logger: slog.New(&following{root: root}), out: &lines{w: w}, root: root}
	l.Configure(cfg)
	return l
}

// Configure changes level and form of all lines from now on.
func (l *Log) Configure(cfg config.Log) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	opts := &slog.HandlerOptions{Level: levels[cfg.Level]}
	var h slog.Handler = slog.NewTextHandler(l.out, opts)
	if cfg.Format == "json" {
		h = slog.NewJSONHandler(l.out, opts)
	}
	l.root.Store(&h)
}

// lines keeps the handlers before and after a change from writing at once.
type lines struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

// Write writes one line.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// following writes by the handler that is in force, with attributes and groups
// of its own.
type following struct {
	root *atomic.Pointer[slog.Handler]
	with []func(slog.Handler) slog.Handler
	made atomic.Pointer[dressed]
}

// dressed is a handler with the attributes, made from the one that was in force.
type dressed struct {
	from    *slog.Handler
	handler slog.Handler
}

func (f *following) current() slog.Handler {
	root := f.root.Load()
	if d := f.made.Load(); d != nil && d.from == root {
		return d.handler
	}
	h := *root
	for _, with := range f.with {
		h = with(h)
	}
	f.made.Store(&dressed{root, h})
	return h
}

func (f *following) and(with func(slog.Handler) slog.Handler) slog.Handler {
	return &following{root: f.root, with: append(slices.Clip(f.with), with)}
}

// Enabled tells whether the level is written.
func (f *following) Enabled(ctx context.Context, level slog.Level) bool {
	return f.current().Enabled(ctx, level)
}

// Handle writes a line.
func (f *following) Handle(ctx context.Context, r slog.Record) error {
	return f.current().Handle(ctx, r)
}

// WithAttrs adds attributes to every line.
func (f *following) WithAttrs(attrs []slog.Attr) slog.Handler {
	return f.and(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup opens a group.
func (f *following) WithGroup(name string) slog.Handler {
	return f.and(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}
