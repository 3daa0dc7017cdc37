package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/library"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/config"
)

// moduleDir is the module directory; nothing when none is configured.
type moduleDir struct {
	dir *library.Dir
	lib *library.Library
}

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
	return lib, moduleDir{dir, lib}, dir.Load(ctx)
}

// followModuleDir keeps the names of the module directory those of its files.
func followModuleDir(lc fx.Lifecycle, failed failures, r *reloads, m moduleDir) {
	if m.dir == nil {
		return
	}
	background(lc, failed, "module directory", m.dir.Run)
	r.follow(modelsFirst, part{prepare: m.lookFirst})
}

// lookFirst has a reload find the modules of files that were put just before it.
// The names follow the files whatever comes of the reload, as they do without one;
// files that are bad do not stand against it.
func (m moduleDir) lookFirst(ctx context.Context, _ *config.Config) (prepared, error) {
	return settled(func() {}), m.dir.Load(ctx)
}

// explain says of a module that is not there why the module directory does not
// give it.
func (m moduleDir) explain(err error) error {
	if m.lib == nil || !errors.Is(err, store.ErrNotFound) {
		return err
	}
	st, _ := m.lib.Directory()
	if st.Error == "" {
		return err
	}
	return fmt.Errorf("%w; the files of plugins.module_dir %q are not in force: %s", err, st.Path, st.Error)
}
