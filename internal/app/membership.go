package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.uber.org/fx"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/upstream"
)

// fileSource is the name of the configuration file's workers.
const fileSource = "file"

// membershipModule brings workers from the file and the admin API to the core.
func membershipModule() fx.Option {
	return fx.Module("membership", fx.Provide(newReconciler, newWorkerAPI, newStaticWorkers, newSources, newAdapters), fx.Invoke(bringWorkers, followSources, followWorkers, followAdapters))
}

func newReconciler(
	lc fx.Lifecycle, d *dataDir, l *live, c *core.SelectionCore, index indexes, monitor *health.Monitor, scraper *scrape.Scraper, all *roster,
	client *upstream.Client, log *slog.Logger, failed failures,
) (*catalog.Reconciler, error) {
	drains, err := catalog.OpenDrains(d.file("drains.json"))
	if err != nil {
		return nil, err
	}
	r := catalog.New(catalog.Parts{
		Core: c, Listeners: index, Engines: newEngines(l), Health: monitor, Adapters: scraper.Adapters, Drains: drains, Left: client.ResetBreaker,
	}, log.With("component", "catalog"))
	all.is(r)
	background(lc, failed, "worker reconciler", r.Run)
	return r, nil
}

func newWorkerAPI(d *dataDir, r *catalog.Reconciler) (*api.Source, error) {
	return api.Open(d.file("workers.json"), r)
}

// firstTry is how long the start waits for engines to answer. Those that took
// longer are tried again by the reconciler, beside everything else.
const firstTry = 300 * time.Millisecond

// bringWorkers takes over what both sources have at start; only a list that
// contradicts itself stops it. A worker that needs no answer of its engine, or
// gets one in time, is ready when the listeners open.
func bringWorkers(lc fx.Lifecycle, cfg config.Config, r *catalog.Reconciler, stored *api.Source, log *slog.Logger) {
	lc.Append(fx.StartHook(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, firstTry)
		defer cancel()
		planned, err := r.Plan(fileSource, cfg.Workers.Static)
		if err != nil {
			return fmt.Errorf("workers.static: %w", err)
		}
		var first sync.WaitGroup
		first.Go(func() { r.Bring(ctx, planned...) })
		skipped, err := stored.Restore(ctx)
		first.Wait()
		for _, reason := range skipped {
			log.Warn("worker added by API is another source's by now, and left out for good", "err", reason)
		}
		if err != nil {
			return fmt.Errorf("stored workers: %w", err)
		}
		return nil
	}))
}
