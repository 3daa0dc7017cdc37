package host

import (
	"context"
	"log/slog"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// CompileChildBody is a child's work without its limits.
var CompileChildBody = compileChild

// LimitSelf limits this process as a compile child does.
var LimitSelf = limitSelf

// ForgetPartition is what a PolicySource does with its runtime.
func ForgetPartition(r *Runtime, key fleet.PartitionKey) error { return r.forget(key) }

// OutOfMemory tells a child's last words of memory from others.
var OutOfMemory = outOfMemory

// NewInterpreted is New with the engine's interpreter.
func NewInterpreted(cfg Config, log *slog.Logger) (*Runtime, error) {
	return newRuntime(cfg, log, nil, wazero.NewRuntimeConfigInterpreter(), overcommitFile)
}

// NewWhere is New on a machine whose overcommitment is told by a file.
func NewWhere(cfg Config, log *slog.Logger, overcommit string) (*Runtime, error) {
	return newRuntime(cfg, log, nil, wazero.NewRuntimeConfig(), overcommit)
}

// WithoutReservation makes a runtime use ordinary memory, as under strict
// overcommit.
func WithoutReservation(r *Runtime) { r.reserve = false }

// SetWall changes how long a child may take.
func (c *Child) SetWall(d time.Duration) { c.wall = d }

// Idle is how many instances of a stage's pool are in their slots.
func Idle(s policy.Scorer) (n int) {
	p := s.(scorerStage).pool
	for i := range p.slots {
		if p.slots[i].Load() != nil {
			n++
		}
	}
	return n
}

// Scoped makes the stages that are made under ctx those of a dry run or shadow.
var Scoped = scoped

// Shared is what modules and pools are counted with.
type Shared struct{ s *shared[string, int] }

// NewShared makes one that closes its values with closeValue.
func NewShared(closeValue func(int) error) Shared { return Shared{newShared[string](closeValue)} }

// Get is get.
func (s Shared) Get(ctx context.Context, key string, build func(context.Context) (int, error)) (int, error) {
	return s.s.get(ctx, key, build)
}

// Release is release.
func (s Shared) Release(key string) error { return s.s.release(key) }

// Len is len.
func (s Shared) Len() int { return s.s.len() }

// SetCompiledBytes changes how large the folder of compiled modules may get.
func SetCompiledBytes(r *Runtime, n int64) { r.disk.most = n }
