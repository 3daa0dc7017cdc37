package app

import (
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/engine"
)

// engines finds out what engines are: by asking them, and for block sizes first in the
// configuration in force.
type engines struct {
	*engine.Asker
	live *live
}

var _ catalog.Engines = engines{}

func newEngines(l *live) engines { return engines{engine.New(engine.Options{}), l} }

// Configured is the model's block size in the configuration, 0 for none.
func (e engines) Configured(model string) int { return e.live.Load().Models[model].BlockSize }
