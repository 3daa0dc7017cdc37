package health

import (
	"context"
	"sync"
	"time"
)

const (
	// maxAtOnce bounds how many probes are waited for together.
	maxAtOnce = 64
	// prompt is how long a probe counts for that bound: an engine that is well
	// answers long before, and one that is silent is not to delay others.
	prompt = 50 * time.Millisecond
	// spacing is the least time between two listings of the workers, so that a fleet
	// that flaps is not listed for each worker. Nobody is probed while a listing is
	// due.
	spacing = 50 * time.Millisecond
	// idle is how long Run sleeps where nothing is due.
	idle = time.Hour
)

// Run probes the workers until ctx ends, waits for what is under way and returns
// nil.
func (m *Monitor) Run(ctx context.Context) error {
	var probes sync.WaitGroup
	defer probes.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var changed <-chan struct{}
	var listed time.Time
	for due := true; ; {
		wait := spacing - time.Since(listed)
		switch {
		case due && (wait <= 0 || changed == nil):
			changed = m.reconciler.Changed()
			m.refresh()
			due, listed = false, time.Now()
			wait = m.launch(ctx, &probes)
		case !due && !closed(changed):
			wait = m.launch(ctx, &probes)
		default:
			due = true
		}
		timer.Reset(max(wait, 0))
		fired := changed
		if due {
			fired = nil // it is known
		}
		select {
		case <-ctx.Done():
			return nil
		case <-fired:
			due = true
		case <-m.stale:
			due = true
		case <-m.wake:
		case <-timer.C:
		}
	}
}

// closed tells whether a channel is.
func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// launch does what is due and returns how long nothing will be. Where it has run out
// of slots, one that gets free wakes Run.
func (m *Monitor) launch(ctx context.Context, probes *sync.WaitGroup) time.Duration {
	var fx effects
	defer m.emit(&fx)
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := min(idle, m.expireReturns(now))
	for len(m.agenda) > 0 {
		w := m.agenda[0]
		if wait := w.due.Sub(now); wait > 0 {
			return min(wait, rest)
		}
		if !m.cfg.asks() {
			m.agenda.remove(w)
			w.machine.tick(&m.cfg, now)
			m.review(w, now, &fx)
			m.schedule(w, now, now)
			continue
		}
		select {
		case m.slots <- struct{}{}:
			probes.Go(m.takeOff(ctx, w, taken))
		default:
			return rest
		}
	}
	return rest
}

// slot waits for a free slot.
func (m *Monitor) slot(ctx context.Context) bool {
	select {
	case m.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// taken is slot for whoever has one.
func taken(context.Context) bool { return true }

// takeOff begins a probe and returns the rest of it, which is to be called once,
// without mu. The worker must have none under way; mu must be held.
func (m *Monitor) takeOff(ctx context.Context, w *watched, slot func(context.Context) bool) func() {
	ctx, cancel := context.WithCancel(ctx)
	w.flight = &flight{cancel: cancel, done: make(chan struct{})}
	m.agenda.remove(w)
	name, url, path, timeout := w.name, w.url, m.cfg.Path, m.cfg.Timeout
	return func() {
		start := time.Now()
		if !slot(ctx) {
			m.land(ctx, w, start, answer{})
			return
		}
		release := sync.OnceFunc(func() {
			<-m.slots
			nudge(m.wake)
		})
		slow := time.AfterFunc(prompt, release)
		asking, end := context.WithTimeout(ctx, timeout)
		a, err := m.asker.ask(asking, url, path)
		end()
		slow.Stop()
		release()
		if err != nil && ctx.Err() == nil {
			m.log.Debug("probe failed", "worker", name, "result", a.result.String(), "err", err)
		}
		m.land(ctx, w, start, a)
	}
}

// land notes the end of a probe and plans the next one. One that was cancelled says
// nothing.
func (m *Monitor) land(ctx context.Context, w *watched, start time.Time, a answer) {
	var fx effects
	defer m.emit(&fx)
	m.mu.Lock()
	defer m.mu.Unlock()
	f, cancelled := w.flight, ctx.Err() != nil
	f.cancel()
	close(f.done)
	w.flight = nil
	if m.workers[w.id] != w {
		return // it has left
	}
	now := time.Now()
	due := start.Add(jitter(m.cfg.Interval))
	switch {
	case cancelled:
		due = now.Add(spread(m.cfg.Interval))
	case m.cfg.asks():
		if !w.machine.known() { // workers that came together part
			due = now.Add(spread(m.cfg.Interval))
		}
		m.counters.probes[a.result].Add(1)
		w.machine.probe(&m.cfg, now, a)
		m.review(w, now, &fx)
	}
	m.schedule(w, now, due)
	nudge(m.wake)
}
