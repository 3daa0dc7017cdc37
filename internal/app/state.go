package app

import (
	"os"

	"go.uber.org/fx"

	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/config"
)

// stateModule owns the data directory.
func stateModule() fx.Option {
	return fx.Module("state", fx.Provide(newDataDir, newModuleStore))
}

func newDataDir(opened *closers, cfg config.Config) (*dataDir, error) {
	d, err := openDataDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	opened.add(d.Close)
	return d, nil
}

func newModuleStore(d *dataDir) (*store.Store, error) {
	return store.Open(d.file("modules"))
}

// compiledDir is where compiled modules are kept; its content is executed, so
// that nobody else may write there.
func (d *dataDir) compiledDir() (string, error) {
	dir := d.file("compiled")
	return dir, os.MkdirAll(dir, 0o700)
}
