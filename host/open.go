package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// Stage loads a module with its configuration, checked, compiled, set up and
// self-tested, and makes a stage of the kind, which the module must declare: a
// policy.Filter, policy.Scorer (also for abi.KindLoraScorer), policy.Picker or
// policy.Whole. digest names the bytes ("sha256:HEX") and use the stage in
// faults. An error is a *LoadError where the module or the configuration is at
// fault. The caller closes the stage after its last call. Every stage is an
// Audited.
func (r *Runtime) Stage(ctx context.Context, kind abi.Kind, use string, wasm []byte, digest string, config json.RawMessage) (policy.Stage, error) {
	m, err := r.modules.get(ctx, digest, func(ctx context.Context) (*module, error) { return r.load(ctx, wasm, digest) })
	if err != nil {
		return nil, err
	}
	if !m.manifest.HasKind(kind) {
		return nil, errors.Join(refuse(StepManifest, abi.EManifest, "kind "+string(kind)+" is not among the module's kinds", fmt.Sprint(m.manifest.Kinds)), r.modules.release(digest))
	}
	c, err := contained("read configuration", func() (*configuration, error) { return m.configure(config) })
	if err != nil {
		return nil, errors.Join(err, r.modules.release(digest))
	}
	key := poolKey{module: digest, config: scopeOf(ctx) + c.digest}
	p, err := r.pools.get(ctx, key, func(ctx context.Context) (*pool, error) { return r.openPool(ctx, m, c) })
	// The pool holds a reference to the module of its own.
	if err := errors.Join(err, r.modules.release(digest)); err != nil {
		return nil, err
	}
	s := &stage{use: use, rt: r, key: key, pool: p, kind: kind, number: kindNumber(kind), metrics: r.metrics.stage(m.manifest.Name, scopeOf(ctx) == "")}
	s.audits.next.Store(firstAudit())
	return s.as(), nil
}

// openPool sets two instances up, tests them and makes them the pool's first. Of
// a module that keeps state they are thrown away again: what the test left in
// them is no partition's.
func (r *Runtime) openPool(ctx context.Context, m *module, c *configuration) (*pool, error) {
	aside := scopeOf(ctx) != ""
	sh, ready, err := r.setUp(ctx, m, c, aside, max(firstRows, int(r.rows.Load())))
	if err != nil {
		return nil, err
	}
	kept := false
	defer func() { // also when something panics
		for _, in := range ready {
			if !kept {
				in.close()
			}
		}
	}()
	d := freshDraw()
	r.log.Debug("plugin self-test", slog.String("plugin", m.manifest.Name), slog.String("digest", m.digest), slog.Uint64("seed", d.seed), slog.Time("now", d.now))
	_, err = r.selfTest(m, ready, d)
	if err != nil && slices.ContainsFunc(ready, func(in *instance) bool { return in.region.refused > 0 }) {
		return nil, r.noMemory(m, aside)
	}
	if err != nil {
		return nil, err
	}
	log := &guestLog{mute: true}
	if !aside {
		log = newGuestLog(r.log, m.manifest.Name, m.digest, r.metrics.logDropped.WithLabelValues(m.manifest.Name))
	}
	if m.manifest.State == abi.StateInstance {
		return r.holding(ctx, m, func() *pool { return newPool(r, m, c, aside, log, sh, nil) })
	}
	p, err := r.holding(ctx, m, func() *pool { return newPool(r, m, c, aside, log, sh, ready) })
	kept = err == nil
	return p, err
}

// setUp makes the instances that are tested. A module that has no room for as
// many rows as there are workers gets frames of the first capacity.
func (r *Runtime) setUp(ctx context.Context, m *module, c *configuration, aside bool, capacity int) (sh *shape, ready []*instance, err error) {
	if sh, err = newShape(m, c, capacity); err != nil {
		return nil, nil, err
	}
	var made []*instance
	whole := false
	defer func() { // also when something panics
		for _, in := range made {
			if !whole {
				in.close()
			}
		}
	}()
	for range spareInstances {
		if err := ctx.Err(); err != nil {
			return nil, nil, fmt.Errorf("set up module: %w", context.Cause(ctx))
		}
		in, err := r.newBound(m, c, sh, terms{log: &guestLog{mute: true}, aside: aside})
		switch {
		case err != nil && sh.capacity() > firstRows:
			return r.setUp(ctx, m, c, aside, firstRows)
		case errors.Is(err, errMemory):
			return nil, nil, r.noMemory(m, aside)
		case err != nil:
			return nil, nil, err
		}
		made = append(made, in)
	}
	whole = true
	return sh, made, nil
}

// noMemory refuses an instance that there is no memory for.
func (r *Runtime) noMemory(m *module, aside bool) error {
	allowed := fmt.Sprintf("plugins.memory_limit of %d bytes for all instances together", r.limits.Load().MemoryLimit)
	if aside {
		allowed += ", three quarters of it where they serve no request"
	}
	return refuse(StepStart, abi.EPool, fmt.Sprintf("%d pages of memory for one more instance", m.minPages), allowed)
}

// holding makes a pool that holds a reference to its module.
func (r *Runtime) holding(ctx context.Context, m *module, open func() *pool) (*pool, error) {
	_, err := r.modules.get(ctx, m.digest, func(context.Context) (*module, error) {
		return nil, errors.New("the module went away while it was being loaded")
	})
	if err != nil {
		return nil, err
	}
	return open(), nil
}

// poolOf is the pool that serves a partition: the stage's own unless the module
// keeps state. Such a pool begins empty; its first calls wait as in any pool
// that has nothing idle.
func (s *stage) poolOf(key fleet.PartitionKey) (*pool, error) {
	if s.pool.module.manifest.State == abi.StateNone {
		return s.pool, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.partitions[key]; ok {
		return p, nil
	}
	p, err := s.rt.pools.get(context.Background(), s.keyOf(key), func(ctx context.Context) (*pool, error) {
		base := s.pool
		return s.rt.holding(ctx, base.module, func() *pool {
			return newPool(s.rt, base.module, base.config, base.aside, base.log, base.shape.Load(), nil)
		})
	})
	if err != nil {
		return nil, err
	}
	if s.partitions == nil {
		s.partitions = map[fleet.PartitionKey]*pool{}
		s.rt.keeping.Store(s, struct{}{})
	}
	s.partitions[key] = p
	return p, nil
}

// forget gives up the pools of a partition, in which nobody is in a call.
func (r *Runtime) forget(key fleet.PartitionKey) error {
	var errs []error
	for s := range r.keeping.Range {
		if s, ok := s.(*stage); ok {
			errs = append(errs, s.forget(key))
		}
	}
	return errors.Join(errs...)
}

func (s *stage) forget(key fleet.PartitionKey) error {
	s.mu.Lock()
	_, ok := s.partitions[key]
	delete(s.partitions, key)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	return s.rt.pools.release(s.keyOf(key))
}

func (s *stage) keyOf(partition fleet.PartitionKey) poolKey {
	key := s.key
	key.partition, key.stateful = partition, true
	return key
}
