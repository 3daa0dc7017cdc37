package app

import (
	"context"
	"log/slog"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/internal/config"
)

// warnOfConfig tells at the start, and at each reload, what of the configuration is
// probably not meant.
func warnOfConfig(r *reloads, cfg config.Config, log *slog.Logger) {
	logWarnings(log.With("component", "config"), configWarnings(&cfg))
	r.follow(settingsLast, part{prepare: func(_ context.Context, now *config.Config) (prepared, error) {
		p := settled(func() {})
		p.warn = configWarnings(now)
		return p, nil
	}})
}

func configWarnings(cfg *config.Config) []admin.ReloadWarning {
	var out []admin.ReloadWarning
	for _, w := range cfg.Warnings() {
		out = append(out, admin.ReloadWarning{Code: w.Code, Item: w.Key, Message: w.Message})
	}
	return out
}

func logWarnings(log *slog.Logger, warnings []admin.ReloadWarning) {
	for _, w := range warnings {
		log.Warn("configuration warning", "code", w.Code, "key", w.Item, "reason", w.Message)
	}
}
