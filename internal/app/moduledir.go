package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/library"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/config"
)

// moduleDir is the module directory; nothing when none is configured.
type moduleDir struct{ dir *library.Dir }

// newLibrary opens the library. Modules of the module directory are in the store
// when it returns, so that the policies that are made next find them; what is
// kept of policies is not pinned yet, so nothing is removed before.
func newLibrary(
	ctx context.Context, rt *host.Runtime, modules *store.Store, cfg config.Config, log *slog.Logger, reg prometheus.Registerer,
) (*library.Library, moduleDir, error) {
	lib, err := library.New(modules, rt, reg)
	if err != nil {
		return nil, moduleDir{}, err
	}
	if cfg.Plugins.ModuleDir == "" {
		return lib, moduleDir{}, modules.Adopt()
	}
	modules.Hold()
	dir := library.NewDir(library.DirConfig{Path: cfg.Plugins.ModuleDir}, lib, log.With("component", "modules"))
	return lib, moduleDir{dir}, dir.Load(ctx)
}

// followModuleDir keeps the names of the module directory those of its files.
func followModuleDir(lc fx.Lifecycle, failed failures, m moduleDir) {
	if m.dir != nil {
		background(lc, failed, "module directory", m.dir.Run)
	}
}
