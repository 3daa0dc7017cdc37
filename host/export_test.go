package host

import (
	"log/slog"
	"time"

	"github.com/tetratelabs/wazero"
)

// CompileChildBody is a child's work without its limits.
var CompileChildBody = compileChild

// NewInterpreted is New with the engine's interpreter.
func NewInterpreted(cfg Config, log *slog.Logger) (*Runtime, error) {
	return newRuntime(cfg, log, nil, wazero.NewRuntimeConfigInterpreter())
}

// SetWall changes how long a child may take.
func (c *Child) SetWall(d time.Duration) { c.wall = d }
