package app

import (
	"context"
	"fmt"
	"log/slog"

	"go.uber.org/fx"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/config"
)

// fileSource is the name of the configuration file's workers.
const fileSource = "file"

// membershipModule brings workers from the file and the admin API to the core.
func membershipModule() fx.Option {
	return fx.Module("membership", fx.Provide(newReconciler, newWorkerAPI), fx.Invoke(bringWorkers))
}

func newReconciler(lc fx.Lifecycle, cfg config.Config, c *core.SelectionCore, index *caches, log *slog.Logger, failed failures) *catalog.Reconciler {
	r := catalog.New(c, index, newBlockSizes(cfg.Models), log.With("component", "catalog"))
	background(lc, failed, "worker reconciler", r.Run)
	return r
}

func newWorkerAPI(d *dataDir, r *catalog.Reconciler) (*api.Source, error) {
	return api.Open(d.file("workers.json"), r)
}

// bringWorkers applies what both sources have at start. A worker that does not
// answer is incomplete and delays nothing further.
func bringWorkers(lc fx.Lifecycle, cfg config.Config, r *catalog.Reconciler, stored *api.Source, log *slog.Logger) {
	lc.Append(fx.StartHook(func(ctx context.Context) error {
		if err := r.Apply(ctx, fileSource, cfg.Workers.Static); err != nil {
			return fmt.Errorf("workers.static: %w", err)
		}
		skipped, err := stored.Restore(ctx)
		for _, reason := range skipped {
			log.Warn("worker left out", "err", reason)
		}
		if err != nil {
			return fmt.Errorf("stored workers: %w", err)
		}
		return nil
	}))
}
