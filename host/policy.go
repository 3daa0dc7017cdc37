package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// stage is a pipeline scorer that runs a guest module. Stages with the same
// module and configuration share a pool.
type stage struct {
	use     string
	rt      *Runtime
	key     poolKey
	pool    *pool
	metrics *stageMetrics
}

var _ policy.Scorer = (*stage)(nil)

// Stage loads a module with its configuration: checked, compiled, set up and
// self-tested. digest names the bytes ("sha256:HEX") and use the stage in
// faults. An error is a *LoadError where the module or the configuration is at
// fault. The caller closes the stage after its last call.
func (r *Runtime) Stage(ctx context.Context, use string, wasm []byte, digest string, config json.RawMessage) (policy.Scorer, error) {
	m, err := r.modules.get(ctx, digest, func(ctx context.Context) (*module, error) { return r.load(ctx, wasm, digest) })
	if err != nil {
		return nil, err
	}
	c, err := contained("read configuration", func() (*configuration, error) { return m.configure(config) })
	if err != nil {
		return nil, errors.Join(err, r.modules.release(digest))
	}
	key := poolKey{digest, scopeOf(ctx) + c.digest}
	p, err := r.pools.get(ctx, key, func(ctx context.Context) (*pool, error) { return r.openPool(ctx, m, c) })
	// The pool holds a reference to the module of its own.
	if err := errors.Join(err, r.modules.release(digest)); err != nil {
		return nil, err
	}
	return &stage{use: use, rt: r, key: key, pool: p, metrics: r.metrics.stage(m.manifest.Name)}, nil
}

// openPool sets two instances up, tests them and makes them the pool's first.
func (r *Runtime) openPool(ctx context.Context, m *module, c *configuration) (*pool, error) {
	quiet := &guestLog{mute: true}
	var ready []*instance
	kept := false
	defer func() { // also when something panics
		for _, in := range ready {
			if !kept {
				in.close()
			}
		}
	}()
	for range spareInstances {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("set up module: %w", context.Cause(ctx))
		}
		in, err := r.newInstance(m, c, quiet)
		if errors.Is(err, errMemory) {
			return nil, refuse(StepStart, abi.EPool, fmt.Sprintf("%d pages of memory for one more instance", m.minPages),
				fmt.Sprintf("plugins.memory_limit of %d bytes for all instances together", r.cfg.MemoryLimit))
		}
		if err != nil {
			return nil, err
		}
		ready = append(ready, in)
	}
	d := freshDraw()
	r.log.Debug("plugin self-test", slog.String("plugin", m.manifest.Name), slog.String("digest", m.digest), slog.Uint64("seed", d.seed), slog.Time("now", d.now))
	if _, err := r.selfTest(m, c, ready, d); err != nil {
		return nil, err
	}
	held, err := r.modules.get(ctx, m.digest, func(context.Context) (*module, error) {
		return nil, errors.New("the module went away while it was being loaded")
	})
	if err != nil {
		return nil, err
	}
	kept = true
	return newPool(r, held, c, newGuestLog(r.log, m.manifest.Name, m.digest, r.metrics.logDropped.WithLabelValues(m.manifest.Name)), ready), nil
}

func (r *Runtime) closePool(p *pool) error {
	return errors.Join(p.close(), r.modules.release(p.module.digest))
}

// Columns is what the manifest declares and this host knows.
func (s *stage) Columns() policy.ColumnSet { return s.pool.module.columns }

// CheckOverride knows the config.<pointer> request fields of the manifest.
func (s *stage) CheckOverride(name string, value json.RawMessage) (known bool, err error) {
	m := s.pool.module
	return contained("check override", func() (bool, error) { return m.checkOverride(s.pool.config, name, value) })
}

// Close gives the stage's share of the pool up.
func (s *stage) Close() error { return s.rt.pools.release(s.key) }

// Score calls the guest once for all rows.
func (s *stage) Score(ctx context.Context, t *policy.Table, scores []float64, r *policy.StageReport) (policy.Verdict, error) {
	m := s.pool.module
	if t.Len() > m.layout.Capacity {
		return 0, s.fault(&policy.Fault{
			Code: string(abi.EPool), Reason: reasonCapacity,
			Detail: fmt.Sprintf("%d candidates; the module's frame holds %d", t.Len(), m.layout.Capacity),
		})
	}
	in, err := s.pool.get(ctx)
	if err != nil {
		return 0, s.poolFault(ctx, err)
	}
	s.metrics.calls.Inc()
	code, used, fault := in.scoreCall(s.pool.filler, t, s.rt.budget(m.manifest, t.Len()), s.rt.cfg.CallDeadline)
	r.Fuel = used
	s.metrics.fuel.Add(float64(used))
	if fault == nil && code == abi.GuestOK {
		if r.Cleaned, fault = in.take(m.layout, scores, m.manifest.ScoreRange); fault != nil {
			fault.Fuel = used
		}
	}
	if fault != nil {
		s.pool.discard(in)
		return 0, s.fault(fault)
	}
	s.pool.put(in)
	if code == abi.GuestAbstain {
		return policy.Abstained, nil
	}
	return policy.Answered, nil
}

func (s *stage) poolFault(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), policy.ErrOutOfTime) {
		s.metrics.faults[reasonPoolWait].Inc()
		return fmt.Errorf("wait for an instance of %s: %w", s.use, err)
	}
	return s.fault(&policy.Fault{Code: string(abi.EPool), Reason: reasonPoolWait, Detail: err.Error()})
}

func (s *stage) fault(f *policy.Fault) error {
	f.Stage = s.use
	f.Detail = f.Detail[:min(len(f.Detail), 512)]
	s.metrics.faults[f.Reason].Inc()
	return f
}
