package host

import "context"

// A pool aside serves no request: what its instances take is a part of what is
// measured and bounded where they are asked for, and ends with whoever asks.

// getAside is get of a pool aside: what is missing is made at once. ctx ends
// that, and what the instance does next.
func (p *pool) getAside(ctx context.Context) (in *instance, err error) {
	if p.waiting.Load() == 0 {
		in = p.idle()
	}
	if in == nil {
		in, err = p.makeAside(ctx)
	}
	if err != nil {
		return nil, err
	}
	in.asker = ctx
	return in, nil
}

func (p *pool) makeAside(ctx context.Context) (*instance, error) {
	p.mu.Lock()
	full := p.alive >= len(p.slots)
	if !full {
		p.alive++
	}
	p.mu.Unlock()
	if full {
		return p.wait(ctx)
	}
	in, err := p.make(ctx, p.shape.Load())
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.alive--
	}
	return in, err
}

// widenNow has the frames that n rows need made at once where the pool is aside;
// false when it has none then.
func (p *pool) widenNow(ctx context.Context, n int) bool {
	capacity := capacityFor(n, p.module.manifest.Limits.MaxRows)
	if !p.aside || capacity == 0 {
		return false
	}
	p.mu.Lock()
	may := p.mayWiden(capacity)
	if may {
		p.widen = capacity
	}
	p.mu.Unlock()
	if may {
		p.makeWider(ctx, capacity, 1)
	}
	return n <= p.shape.Load().capacity()
}
