package host

import (
	"context"
)

// A fleet that outgrows the frames of a pool gets larger ones in the background:
// new instances are bound, then they take the place of all others at once. Until
// then calls with more rows than fit are the fallback's.

// widenTo has the frames made that n rows need, unless that is under way or not
// allowed. It tells why they could not be made the last time; nil when they were.
func (p *pool) widenTo(n int) (cannot error) {
	capacity := capacityFor(n, p.module.manifest.Limits.MaxRows)
	if capacity == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aside || !p.mayWiden(capacity) {
		return p.wider.err
	}
	replaced := max(p.alive, 1)
	if p.background(func() { p.makeWider(context.Background(), capacity, replaced) }) {
		p.widen = capacity
	}
	return p.wider.err
}

// mayWiden tells whether larger frames may be made now. p.mu is held.
func (p *pool) mayWiden(capacity int) bool {
	return p.widen == 0 && capacity > p.shape.Load().capacity() && !p.wider.waits()
}

// makeWider makes as many instances as there
// are, fewer where memory is short.
func (p *pool) makeWider(ctx context.Context, capacity, most int) {
	sh, err := newShape(p.module, p.config, capacity)
	var made []*instance
	for err == nil && len(made) < most {
		var in *instance
		if in, err = p.make(ctx, sh); err == nil {
			made = append(made, in)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.widen = 0
	if p.closed { // it was stopped
		for _, in := range made {
			in.close()
		}
		return
	}
	if len(made) == 0 {
		p.wider.failed(p, "frames cannot grow: calls with more candidates are the fallback's", err)
		return
	}
	p.wider = setback{}
	p.shape.Store(sh)
	p.sweep()
	for _, in := range made {
		if p.alive >= len(p.slots) { // others are in use: they go when they come back
			in.close()
			continue
		}
		p.alive++
		p.keep(in)
	}
	p.ahead.Store(p.alive < len(p.slots) && !p.growing)
	p.serve()
	if len(p.line) > 0 {
		p.grow()
	}
}

// sweep closes idle instances of another shape than the pool's. p.mu is held.
func (p *pool) sweep() {
	now := p.shape.Load()
	for i := range p.slots {
		if in := p.slots[i].Load(); in != nil && in.shape != now && p.slots[i].CompareAndSwap(in, nil) {
			in.close()
			p.alive--
		}
	}
}
