package host

import (
	"sync/atomic"

	"github.com/routerd/routerd/core/policy"
)

// watch hears of a policy's committed decisions, on the requests' goroutines: it
// keeps frames for probes and offers work to the shadow. It never waits.
type watch struct {
	desk   *desk
	frames frames
	probes atomic.Uint64 // how often a tripped revision was probed
	active atomic.Pointer[policy.Revision]
	shadow atomic.Pointer[shadow] // nil for none
}

var _ policy.Observer = (*watch)(nil)

func newWatch(d *desk) *watch { return &watch{desk: d} }

// Observe looks at decisions that a policy was asked for.
func (w *watch) Observe(by *policy.Revision, t *policy.Table, d *policy.Decision) {
	if t.Len() == 0 || d.By != policy.ByPolicy && d.By != policy.ByFallback {
		return
	}
	now := w.desk.now()
	w.frames.offer(now, t)
	sh := w.shadow.Load()
	if sh == nil || by != w.active.Load() {
		return
	}
	sh.seen.Add(1)
	if !sh.samples(t.Seed) {
		return
	}
	sh.chosen.Add(1)
	if !w.desk.offer(now, sh, t, d) {
		sh.shed.Add(1)
	}
}
