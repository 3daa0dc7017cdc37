package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// pool holds the instances of one (module, configuration), of one partition
// where the module keeps state. Idle instances lie in atomic slots; who finds
// none waits in order. Whoever takes the last idle one has another made off the
// request path, by one goroutine at a time, while there are fewer than the most
// allowed: so there is one more than were ever in use at once. All idle
// instances have frames of the pool's shape. A pool aside serves no request: all
// that its instances take is done where it is asked for, on the caller's
// goroutine. Safe for concurrent use.
type pool struct {
	rt     *Runtime
	module *module
	config *configuration
	log    *guestLog
	aside  bool // serves no request: a shadow, a trial or an explanation
	shape  atomic.Pointer[shape]

	slots   []atomic.Pointer[instance] // idle ones
	waiting atomic.Int32               // length of line, for the fast path
	ahead   atomic.Bool                // another may be made before it is asked for
	tidying atomic.Bool                // an instance is being tidied up

	mu      sync.Mutex // guards all below
	alive   int        // idle, in use or in the making
	growing bool
	closed  bool
	workers int       // goroutines at work in the background
	line    []*waiter // in order of arrival
	widen   int       // capacity that is being made, 0 for none
	wider   setback   // of larger frames
	more    setback   // of more instances

	stop atomic.Bool // ends what the workers have guests do, at the next slice
}

type waiter struct {
	got chan *instance // capacity 1: whoever hands over never blocks
}

// spareInstances are kept alive in an idle pool: one and a spare.
const spareInstances = 2

// errPoolWait is that no instance came free in time.
var errPoolWait = errors.New("no instance came free in time")

// errPoolClosed ends waiters of a pool that is being closed.
var errPoolClosed = errors.New("the pool is closed")

// newPool makes a pool around instances that are ready and have frames of sh.
func newPool(r *Runtime, m *module, c *configuration, aside bool, log *guestLog, sh *shape, ready []*instance) *pool {
	p := &pool{
		rt: r, module: m, config: c, log: log, aside: aside,
		slots: make([]atomic.Pointer[instance], max(r.cfg.instances(), 1)),
	}
	p.shape.Store(sh)
	for i, in := range ready {
		if i >= len(p.slots) || aside && i > 0 {
			in.close()
			continue
		}
		in.log, in.stop = log, &p.stop
		p.slots[i].Store(in)
		p.alive++
	}
	p.ahead.Store(p.alive < len(p.slots))
	return p
}

// get takes an idle instance; when there is none it waits until ctx ends, at
// most pool_wait.
func (p *pool) get(ctx context.Context) (*instance, error) {
	if p.aside {
		return p.getAside(ctx)
	}
	if p.waiting.Load() == 0 {
		if in := p.idle(); in != nil {
			if p.ahead.Load() && !p.anyIdle() {
				p.mu.Lock()
				p.grow()
				p.mu.Unlock()
			}
			return in, nil
		}
	}
	return p.wait(ctx)
}

func (p *pool) anyIdle() bool {
	for i := range p.slots {
		if p.slots[i].Load() != nil {
			return true
		}
	}
	return false
}

// idle takes an instance out of the slots; nil when all are empty.
func (p *pool) idle() *instance {
	for i := range p.slots {
		if in := p.slots[i].Load(); in != nil && p.slots[i].CompareAndSwap(in, nil) {
			return in
		}
	}
	return nil
}

func (p *pool) wait(ctx context.Context) (*instance, error) {
	w := &waiter{got: make(chan *instance, 1)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errPoolClosed
	}
	p.line = append(p.line, w)
	p.waiting.Store(int32(len(p.line)))
	// An instance that came back between the look and the line is in a slot.
	p.serve()
	p.grow()
	p.mu.Unlock()
	timer := time.NewTimer(p.rt.limits.Load().PoolWait)
	defer timer.Stop()
	err := errPoolWait
	select {
	case in, ok := <-w.got:
		if !ok {
			return nil, errPoolClosed
		}
		return in, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
	}
	return p.giveUp(w, err)
}

// giveUp leaves the line; an instance that arrived meanwhile is taken after
// all.
func (p *pool) giveUp(w *waiter, err error) (*instance, error) {
	p.mu.Lock()
	for i, o := range p.line {
		if o == w {
			p.line = append(p.line[:i], p.line[i+1:]...)
			break
		}
	}
	p.waiting.Store(int32(len(p.line)))
	if p.more.err != nil && errors.Is(err, errPoolWait) {
		err = fmt.Errorf("%w; another cannot be made: %w", err, p.more.err)
	}
	p.mu.Unlock()
	select {
	case in, ok := <-w.got:
		if ok {
			return in, nil
		}
	default:
	}
	return nil, err
}

// serve hands idle instances to the line. p.mu is held.
func (p *pool) serve() {
	for len(p.line) > 0 {
		in := p.idle()
		if in == nil {
			break
		}
		p.line[0].got <- in
		p.line = p.line[1:]
	}
	p.waiting.Store(int32(len(p.line)))
}

// put gives an instance back after a good call.
func (p *pool) put(in *instance) {
	if in.shape != p.shape.Load() {
		p.retire(in)
		return
	}
	if in.spent() {
		if !p.aside {
			p.rt.metrics.recycled.WithLabelValues(p.module.manifest.Name).Inc()
		}
		p.retire(in)
		return
	}
	if in.tidy != nil && in.untidy() && p.tidyUp(in) {
		return
	}
	p.lay(in)
}

// lay makes an instance idle, or hands it to who waits.
func (p *pool) lay(in *instance) {
	if p.keep(in) && p.waiting.Load() == 0 && in.shape == p.shape.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serve()
	p.sweep()
}

// keep lays an instance into a slot. There is always a free one: there are as
// many slots as instances may be alive beside those that are being widened,
// which lie in none.
func (p *pool) keep(in *instance) bool {
	for i := range p.slots {
		if p.slots[i].Load() == nil && p.slots[i].CompareAndSwap(nil, in) {
			return true
		}
	}
	return p.keep(in)
}

// retire closes an instance that is to serve no more, such as one that faulted.
// Another is made at once when there is no spare left or somebody waits, else
// when one is asked for.
func (p *pool) retire(in *instance) {
	in.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alive--
	p.ahead.Store(!p.growing)
	if p.alive < spareInstances || len(p.line) > 0 {
		p.grow()
	}
}

// grow starts making one more instance unless one is in the making or there are
// enough. p.mu is held.
func (p *pool) grow() {
	if p.aside || p.growing || p.more.waits() || p.alive >= len(p.slots) || !p.background(p.makeOne) {
		return
	}
	p.growing = true
	p.ahead.Store(false)
	p.alive++
}

// background has work done on a goroutine of its own; false when the pool, or
// the runtime, is being closed. The work must take p.mu before it changes the
// pool. p.mu is held.
func (p *pool) background(work func()) bool {
	if p.closed {
		return false
	}
	started := p.rt.crew.start(func() {
		work()
		p.mu.Lock()
		p.workers--
		last := p.closed && p.workers == 0
		p.mu.Unlock()
		if !last {
			return
		}
		if err := p.giveUpAll(); err != nil {
			p.rt.log.Error("close plugin pool", slog.String("plugin", p.module.manifest.Name), slog.Any("err", err))
		}
	})
	if started {
		p.workers++
	}
	return started
}

// makeOne runs on the grower's goroutine.
func (p *pool) makeOne() {
	in, err := p.make(context.Background(), p.shape.Load())
	if err == nil {
		p.keep(in)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.growing = false
	p.sweep()
	if err != nil && p.closed { // it was stopped
		p.alive--
		return
	}
	if err != nil {
		// What set-up did once it may refuse later, when memory is short: a call
		// that has to wait tries again.
		p.alive--
		p.more.failed(p, "no more instances can be made", err)
		return
	}
	p.more = setback{}
	p.ahead.Store(p.alive < len(p.slots))
	p.serve()
	if len(p.line) > 0 {
		p.grow()
	}
}

// make sets an instance up. ctx ends that.
func (p *pool) make(ctx context.Context, sh *shape) (*instance, error) {
	return contained("set up instance", func() (*instance, error) {
		return p.rt.newBound(p.module, p.config, sh, terms{log: p.log, stop: &p.stop, asker: ctx, aside: p.aside})
	})
}

// close ends the pool, in which nobody is in a call any more, and waits for
// nothing: a worker of the pool is stopped, and the last one gives up what is
// left.
func (p *pool) close() error {
	p.mu.Lock()
	p.closed = true
	p.stop.Store(true)
	for _, w := range p.line {
		close(w.got)
	}
	p.line = nil
	p.waiting.Store(0)
	busy := p.workers > 0
	p.mu.Unlock()
	if busy {
		return nil
	}
	return p.giveUpAll()
}

// giveUpAll closes the instances of a closed pool, all idle, and gives up its
// reference to the module.
func (p *pool) giveUpAll() error {
	for in := p.idle(); in != nil; in = p.idle() {
		in.close()
	}
	return p.rt.modules.release(p.module.digest)
}
