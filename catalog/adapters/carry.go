package adapters

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/backoff"
)

// plan has the core plan with what the engines told, and sets about it.
func (k *keeper) plan(ctx context.Context) {
	k.open = false
	k.patience.Stop()
	workers := slices.Clone(k.fixed)
	for _, id := range slices.Sorted(maps.Keys(k.sites)) {
		s := k.sites[id]
		if s.listed == nil || s.silent >= maxSilent {
			continue
		}
		k.tell(s)
		w := lora.Worker{ID: id, Loaded: slices.Sorted(maps.Keys(s.listed)), Manage: k.names[s.record.Model]}
		if len(w.Manage) > 0 {
			w.Slots = k.now.Slots
		}
		workers = append(workers, w)
	}
	k.actions = k.core.PlanAdapters(time.Now(), workers)
	k.giveUp()
	k.carry(ctx)
}

// giveUp ends the unloads that are not wanted any more and have not begun: the
// adapter is used again.
func (k *keeper) giveUp() {
	for id, s := range k.sites {
		for name, c := range s.cells {
			if (c.phase == draining || c.phase == drained) && !slices.Contains(k.actions, lora.Action{Worker: id, Adapter: name}) {
				c.rest()
				k.tell(s)
			}
		}
	}
}

// carry starts what of the actions can be started now. It is called again when a
// call has ended.
func (k *keeper) carry(ctx context.Context) {
	for _, a := range k.actions {
		s := k.sites[a.Worker]
		if s == nil || s.listed == nil {
			continue
		}
		adapter, ok := k.adapter(s, a.Adapter)
		if !ok {
			continue
		}
		c := s.cells[a.Adapter]
		if c == nil {
			c = &cell{}
			s.cells[a.Adapter] = c
		}
		switch {
		case c.phase == resting && time.Now().Before(c.retryAt):
		case a.Load && c.phase == resting && !s.listed[a.Adapter] && k.free(s) && !k.waits(s):
			k.load(ctx, s, c, adapter)
		case !a.Load && c.phase == resting && s.listed[a.Adapter]:
			k.drain(ctx, s, c, a.Adapter)
		case !a.Load && c.phase == drained && k.free(s):
			k.unload(ctx, s, c, a.Adapter)
		}
	}
}

// adapter finds a managed adapter of the worker's model.
func (k *keeper) adapter(s *site, name string) (Adapter, bool) {
	list := k.managed[s.record.Model]
	i := slices.IndexFunc(list, func(a Adapter) bool { return a.Name == name })
	if i < 0 {
		return Adapter{}, false
	}
	return list[i], true
}

// free tells whether the engine can be called now.
func (k *keeper) free(s *site) bool { return !s.busy && k.calls < maxCalls }

// waits tells whether a load has to wait for an unload: the worker is full, and
// something is to go.
func (k *keeper) waits(s *site) bool {
	return len(s.listed) >= k.now.Slots && slices.ContainsFunc(k.actions, func(a lora.Action) bool {
		return a.Worker == s.record.ID && !a.Load && s.listed[a.Adapter]
	})
}

// load has a goroutine load the adapter.
func (k *keeper) load(ctx context.Context, s *site, c *cell, a Adapter) {
	c.phase = loading
	k.tell(s)
	record := s.record
	k.call(ctx, s, c, a.Name, func(ctx context.Context) error { return k.engines.load(ctx, record, a) })
}

// drain has the core send no more requests for the adapter and a goroutine wait
// until the last one has ended, however long that takes.
func (k *keeper) drain(ctx context.Context, s *site, c *cell, name string) {
	c.phase = draining
	k.tell(s)
	wait, stop := context.WithCancel(ctx)
	c.stop = stop
	id := s.record.ID
	k.children.Go(func() {
		if k.unused(wait, id, name) {
			k.report(wait, func(ctx context.Context) {
				if wait.Err() != nil {
					return // given up meanwhile
				}
				stop()
				c.stop, c.phase = nil, drained
				k.carry(ctx)
			})
		}
	})
}

// unused waits until no booking on the worker is for the adapter; it is false
// when ctx ended before.
func (k *keeper) unused(ctx context.Context, id fleet.WorkerID, name string) bool {
	tick := time.NewTicker(k.pace.poll)
	defer tick.Stop()
	for k.core.AdapterUses(id, name) > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return ctx.Err() == nil
}

// unload has a goroutine unload the adapter, which nobody uses.
func (k *keeper) unload(ctx context.Context, s *site, c *cell, name string) {
	c.phase = unloading
	k.tell(s)
	record := s.record
	k.call(ctx, s, c, name, func(ctx context.Context) error { return k.engines.unload(ctx, record, name) })
}

// call runs an order to an engine and has its end taken in.
func (k *keeper) call(ctx context.Context, s *site, c *cell, name string, order func(context.Context) error) {
	s.busy = true
	k.calls++
	begun := time.Now()
	k.children.Go(func() {
		err := order(ctx)
		k.report(ctx, func(ctx context.Context) { k.ended(ctx, s, c, name, time.Since(begun), err) })
	})
}

// ended takes in the end of a load or an unload. After a failure the engine is
// asked what it has: it may have done it all the same.
func (k *keeper) ended(ctx context.Context, s *site, c *cell, name string, took time.Duration, err error) {
	was := c.phase
	c.phase = resting
	s.busy = false
	s.calls++
	k.calls--
	log := k.log.With("worker", s.record.Name, "adapter", name)
	switch {
	case !k.current(s): // it left meanwhile
	case err != nil:
		c.failed(was == loading, err, backoff.Pause(k.pace.firstWait, k.pace.lastWait, c.failures+1))
		log.Warn("adapter neither loaded nor unloaded; it is tried again", "load", was == loading, "err", err)
		if !s.asked {
			k.ask(ctx, s)
		}
		k.tell(s)
	case was == loading:
		c.clear()
		s.listed[name] = true
		log.Info("adapter loaded", "took", took)
		k.tell(s)
	default:
		c.clear()
		delete(s.listed, name)
		log.Info("adapter unloaded", "took", took)
		k.tell(s)
	}
	k.carry(ctx)
}

// failed notes that a load or an unload failed.
func (c *cell) failed(load bool, err error, wait time.Duration) {
	c.failures++
	c.load, c.reason, c.retryAt = load, err.Error(), time.Now().Add(wait)
}

// clear forgets what failed.
func (c *cell) clear() { c.failures, c.reason, c.retryAt = 0, "", time.Time{} }
