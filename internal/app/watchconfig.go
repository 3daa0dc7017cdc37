package app

import (
	"context"
	"log/slog"
	"os"

	"go.uber.org/fx"

	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/filewatch"
)

// Watching has the router reload by itself when the configuration file has
// changed, or a token file that the configuration names. It notes what the file
// holds: call it before the configuration is read, so that nothing that is
// written afterwards is missed. A file that cannot be read twice, such as a pipe,
// is left alone, and so is an empty name. It needs Reloading.
func Watching(file string) Option {
	info, err := os.Stat(file)
	if file == "" || err == nil && !info.Mode().IsRegular() {
		return func(*source) {}
	}
	seen := filewatch.Look(file)
	return func(s *source) { s.file, s.seen = file, seen }
}

// configWatch reloads when a file has changed; nothing without a file.
type configWatch struct {
	file  string
	files *filewatch.Watcher
}

// newConfigWatch is made before the tokens are read, so that one that is written
// afterwards is seen.
func newConfigWatch(from *source, l *live, log *slog.Logger) *configWatch {
	w := &configWatch{file: from.file}
	if w.file != "" {
		w.files = filewatch.New([]string{w.file}, filewatch.Options{Known: from.seen, Log: log.With("component", "reload")})
		w.files.Follow(w.watched(l.Load())...)
	}
	return w
}

// followConfigFile tells the watch of reloads. What the files hold when a reload
// begins, whoever asked for it, is no change any more; and from before the tokens
// are read, the files are those that the new configuration names.
func followConfigFile(w *configWatch, r *reloads, l *live) {
	if w.files == nil {
		return
	}
	load := r.load
	r.load = func() (config.Config, error) {
		w.files.Mark()
		return load()
	}
	r.follow(modelsFirst, part{
		keys: []string{"admin.token_file", "selection.token_file"},
		prepare: func(_ context.Context, now *config.Config) (prepared, error) {
			was := w.watched(l.Load())
			w.files.Follow(w.watched(now)...)
			p := settled(func() {})
			p.undo = func() { w.files.Follow(was...) }
			p.discard = p.undo
			return p, nil
		},
	})
}

// watched are the files that a reload reads. The token of the data folder is not
// among them: the router itself makes it.
func (w *configWatch) watched(cfg *config.Config) []string {
	files := []string{w.file}
	for _, f := range []string{cfg.Admin.TokenFile, cfg.Selection.TokenFile} {
		if f != "" && f != w.file {
			files = append(files, f)
		}
	}
	return files
}

// runConfigWatch watches while the router runs. It starts after all that follows
// the configuration, and stops before. What a reload says is in the log and in the
// metrics.
func runConfigWatch(lc fx.Lifecycle, w *configWatch, r *reloads, l *live, failed failures) {
	if w.files == nil {
		return
	}
	background(lc, failed, "configuration watch", func(ctx context.Context) error {
		return w.files.Run(ctx, func() {
			if l.Load().WatchConfig {
				_, _ = r.reload(ctx, byFile)
			}
		})
	})
}
