package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tetratelabs/wazero"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// Runtime loads modules and shares what they have in common: the engine with
// the imports linked, the compiled cache, the memory budget, modules by digest
// and pools by (module digest, configuration digest). Safe for concurrent use.
type Runtime struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	engine  wazero.Runtime
	cache   wazero.CompilationCache // nil without a cache folder
	disk    *compiledCache          // nil without a cache folder
	memory  memoryBudget
	reserve bool
	limits  atomic.Pointer[Limits]
	rows    atomic.Int64 // capacity that the largest call so far asks for
	guests  guestCollector
	auditor *auditor
	crew    crew          // the goroutines of pools
	turn    chan struct{} // capacity 1: holds a token while a module is rewritten or loaded; guards disk
	fills   chan struct{} // capacity 1: holds a token while a module is compiled; taken before turn

	instances atomic.Int64
	modules   *shared[string, *module]
	pools     *shared[poolKey, *pool]
	keeping   sync.Map // *stage → struct{}: those that have pools of partitions
	close     sync.Once
	closeErr  error
}

// poolKey names a pool: by module and configuration, and by partition where the
// module keeps state.
type poolKey struct {
	module, config string
	partition      fleet.PartitionKey
	stateful       bool
}

// New makes a Runtime. reg may be nil: then nothing is exported.
func New(cfg Config, log *slog.Logger, reg prometheus.Registerer) (*Runtime, error) {
	return newRuntime(cfg, log, reg, wazero.NewRuntimeConfig(), overcommitFile)
}

// newRuntime is New with an engine and with the file that tells how this machine
// overcommits memory.
func newRuntime(cfg Config, log *slog.Logger, reg prometheus.Registerer, rc wazero.RuntimeConfig, overcommit string) (*Runtime, error) {
	if cfg.Compiler == nil {
		cfg.Compiler = InProcess{}
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make plugin runtime: %w", err)
	}
	if !littleEndian() {
		return nil, errors.New("make plugin runtime: this machine is big-endian; guest frames are written in place and need little-endian")
	}
	r := &Runtime{cfg: cfg, log: log, reserve: canReserve(overcommit), turn: make(chan struct{}, 1), fills: make(chan struct{}, 1)}
	r.SetLimits(cfg.limits())
	r.auditor = newAuditor(r)
	if !r.reserve {
		log.Info("guest memory is ordinary memory: address space cannot be reserved without being counted")
	}
	r.modules = newShared[string]((*module).close)
	r.pools = newShared[poolKey]((*pool).close)
	var err error
	if r.metrics, err = newMetrics(reg, r); err != nil {
		return nil, fmt.Errorf("register plugin metrics: %w", err)
	}
	// WithCloseOnContextDone stays off: it makes guests 2.5 to 5 times slower and
	// bounds nothing that fuel does not.
	rc = rc.WithCoreFeatures(features).WithDebugInfoEnabled(false).WithMemoryLimitPages(abi.MaxPages)
	if cfg.CacheDir != "" {
		if r.disk, err = openCompiledCache(cfg.CacheDir); err != nil {
			return nil, err
		}
		if r.cache, err = wazero.NewCompilationCacheWithDir(r.disk.dir); err != nil {
			return nil, fmt.Errorf("open compiled cache: %w", err)
		}
		rc = rc.WithCompilationCache(r.cache)
	}
	ctx := context.Background()
	r.engine = wazero.NewRuntimeWithConfig(ctx, rc)
	if err := linkImports(ctx, r.engine); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close gives everything back, once what guests do in the background has been
// stopped. No stage of this Runtime may be in use.
func (r *Runtime) Close() error {
	r.close.Do(func() {
		ctx := context.Background()
		r.auditor.close()
		r.crew.close()
		if r.engine != nil {
			r.closeErr = r.engine.Close(ctx)
		}
		if r.cache != nil {
			r.closeErr = errors.Join(r.closeErr, r.cache.Close(ctx))
		}
	})
	return r.closeErr
}

// Usage is what a Runtime holds now.
type Usage struct {
	Modules   int   // compiled modules
	Pools     int   // (module, configuration) pairs in use
	Instances int   // guest instances alive
	Memory    int64 // guest memory in bytes, as guests see it
	Mapped    int64 // reserved address space in bytes
}

// Usage tells what is held now.
func (r *Runtime) Usage() Usage {
	return Usage{
		Modules: r.modules.len(), Pools: r.pools.len(), Instances: int(r.instances.Load()),
		Memory: r.memory.used.Load(), Mapped: r.memory.mapped.Load(),
	}
}

// sawRows remembers how many rows a call had, so that pools that are opened
// later begin with frames that hold them.
func (r *Runtime) sawRows(n int) {
	capacity := int64(capacityFor(n, abi.MaxRows))
	for {
		old := r.rows.Load()
		if capacity <= old || r.rows.CompareAndSwap(old, capacity) {
			return
		}
	}
}

// littleEndian tells the byte order of this machine.
func littleEndian() bool {
	return binary.NativeEndian.Uint16([]byte{1, 0}) == 1
}
