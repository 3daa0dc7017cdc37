package host

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/routerd/routerd/host/meter"
	"github.com/routerd/routerd/plugins/abi"
)

// build rewrites a module and gets its compiled form. One module at a time is
// rewritten, since that can take tens of MiB, and one at a time is compiled;
// those that wait hold nothing. What the cache has is loaded while another
// module compiles.
func (r *Runtime) build(ctx context.Context, wasm []byte, m *meter.Module, pages uint32) (wazero.CompiledModule, error) {
	if r.disk != nil {
		if c, err := r.cached(ctx, wasm, m, pages); c != nil || err != nil {
			return c, err
		}
	}
	leave, err := take(ctx, r.fills)
	if err != nil {
		return nil, err
	}
	defer leave()
	if r.disk == nil {
		return r.compileHere(ctx, wasm, m, pages)
	}
	// Whoever had the turn before may have compiled the same bytes.
	if c, err := r.cached(ctx, wasm, m, pages); c != nil || err != nil {
		return c, err
	}
	return r.compileChecked(ctx, wasm, m, pages)
}

// take takes a turn; ctx ends the wait.
func take(ctx context.Context, turn chan struct{}) (leave func(), err error) {
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the compiler: %w", context.Cause(ctx))
	}
}

// rewrite meters a module.
func rewrite(m *meter.Module, pages uint32) ([]byte, error) {
	b, err := m.Rewrite(meter.Options{MemoryMaxPages: pages, StartFuel: abi.FuelSlice, Slice: abi.FuelSlice})
	if err != nil {
		return nil, fromMeter(err)
	}
	return b, nil
}

// cached loads a compiled form that is there and whole; nil when there is none.
func (r *Runtime) cached(ctx context.Context, wasm []byte, m *meter.Module, pages uint32) (wazero.CompiledModule, error) {
	leave, err := take(ctx, r.turn)
	if err != nil {
		return nil, err
	}
	defer leave()
	rewritten, err := rewrite(m, pages)
	if err != nil {
		return nil, err
	}
	return r.fromDisk(ctx, cacheKey(wasm, rewritten), rewritten), nil
}

// fromDisk loads what the cache has for key, once its checksum was found right;
// a damaged entry is dropped. The turn is held.
func (r *Runtime) fromDisk(ctx context.Context, key string, rewritten []byte) wazero.CompiledModule {
	switch r.disk.check(key) {
	case entryMissing:
		return nil
	case entryDamaged:
		r.damaged(key)
		return nil
	}
	c, err := r.engine.CompileModule(context.WithoutCancel(ctx), rewritten)
	if err != nil {
		r.damaged(key)
		return nil
	}
	return c
}

func (r *Runtime) damaged(key string) {
	r.metrics.rebuilds.Inc()
	r.disk.drop(key)
}

// compileChecked compiles into the cache and loads from there. The turn of
// compiling is held, the other one only while files move and the engine loads.
func (r *Runtime) compileChecked(ctx context.Context, wasm []byte, m *meter.Module, pages uint32) (wazero.CompiledModule, error) {
	rewritten, err := r.rewriteInTurn(ctx, m, pages)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	made, err := r.disk.compile(ctx, r.cfg.Compiler, wasm, rewritten)
	r.metrics.compiled(began)
	if err != nil {
		return nil, err
	}
	defer made.discard()
	leave, err := take(ctx, r.turn)
	if err != nil {
		return nil, err
	}
	defer leave()
	key := cacheKey(wasm, rewritten)
	if err := r.disk.publish(key, made); err != nil {
		return nil, err
	}
	if c := r.fromDisk(ctx, key, rewritten); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("%w: what was just compiled cannot be loaded from there", ErrCompiledCache)
}

func (r *Runtime) rewriteInTurn(ctx context.Context, m *meter.Module, pages uint32) ([]byte, error) {
	leave, err := take(ctx, r.turn)
	if err != nil {
		return nil, err
	}
	defer leave()
	return rewrite(m, pages)
}

// compileHere compiles without a cache folder.
func (r *Runtime) compileHere(ctx context.Context, wasm []byte, m *meter.Module, pages uint32) (wazero.CompiledModule, error) {
	rewritten, err := r.rewriteInTurn(ctx, m, pages)
	if err != nil {
		return nil, err
	}
	if err := r.cfg.Compiler.Compile(ctx, wasm, rewritten, ""); err != nil {
		return nil, err
	}
	defer r.metrics.compiled(time.Now())
	c, err := r.engine.CompileModule(context.WithoutCancel(ctx), rewritten)
	if err != nil {
		return nil, refuse(StepCompile, abi.ECompile, clip(err.Error(), maxEngineText), "")
	}
	return c, nil
}
