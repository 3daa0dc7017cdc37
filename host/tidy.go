package host

import (
	"fmt"

	"github.com/routerd/routerd/plugins/abi"
)

// When a guest is given time to tidy up: after so many calls, or when its memory
// has grown by so much.
const (
	tidyCalls  = 1000
	tidyGrowth = 1 << 20 // bytes
	// tidyLate is how many times that it may be late because no other instance
	// is idle.
	tidyLate = 4
)

// growth is how the memory of an instance grew in its calls.
type growth struct {
	calls int    // that it grew in
	step  uint32 // the most in one call, in bytes
}

// habit is in how many calls an instance's memory must have grown to be thought
// to go on growing.
const habit = 3

func (in *instance) grew(by uint32) {
	in.growth.calls++
	in.growth.step = max(in.growth.step, by)
}

// spent tells whether an instance that grows and grows has no room for another
// step: it is thrown away before it fails a request.
func (in *instance) spent() bool {
	return in.growth.calls >= habit && uint64(in.size)+uint64(in.growth.step) > uint64(in.module.maxPages)*pageSize
}

// untidy tells whether rp_idle is due.
func (in *instance) untidy() bool {
	return in.calls >= tidyCalls || in.size-in.tidied >= tidyGrowth
}

// overdue tells whether rp_idle is late.
func (in *instance) overdue() bool {
	return in.calls >= tidyLate*tidyCalls || in.size-in.tidied >= tidyLate*tidyGrowth
}

// tidyUp has rp_idle called off the request path, for one instance of the pool
// at a time and never while somebody waits for one; false when that is not now.
// Where no other instance is idle it is put off, for a while. In a pool aside it
// is done at once.
func (p *pool) tidyUp(in *instance) bool {
	if p.aside {
		p.tidy(in)
		return true
	}
	if p.waiting.Load() > 0 || !p.anyIdle() && !in.overdue() || !p.tidying.CompareAndSwap(false, true) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	started := p.background(func() {
		defer p.tidying.Store(false)
		p.tidy(in)
	})
	if !started {
		p.tidying.Store(false)
	}
	return started
}

// tidy has rp_idle called and lays the instance back.
func (p *pool) tidy(in *instance) {
	if err := in.tidyUp(); err != nil {
		if !p.aside && !p.stop.Load() {
			p.rt.metrics.idleFaults.WithLabelValues(p.module.manifest.Name).Inc()
		}
		p.retire(in)
		return
	}
	p.lay(in)
}

// tidyUp calls rp_idle.
func (in *instance) tidyUp() error {
	in.begin(abi.FuelIdle, 0)
	in.said, in.quiet = nil, in.log.mute
	in.busy = stackOf(in.tidy)
	err := in.tidy.CallWithStack(in.carrier, in.stack[:])
	if err == nil && in.busy.size() > maxNativeStack {
		err = errStack
	}
	in.flush()
	if err != nil {
		return fmt.Errorf("rp_idle: %s", in.trapText(err))
	}
	if !in.view() {
		return fmt.Errorf("rp_idle: %w", errFrameGone)
	}
	in.calls, in.tidied = 0, in.size
	return nil
}
