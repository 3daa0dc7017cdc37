package host

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

const (
	// deskPlaces bounds the recordings that wait for shadows.
	deskPlaces = 64
	// deskRest is how long the desk rests after work, in the work's own time: it
	// takes at most a tenth of a core.
	deskRest = 9
	// copyRest is the same for copying tables on requests' goroutines: at most a
	// fiftieth of a core.
	copyRest = 49
)

// desk is where all shadows of a PolicySource decide: one goroutine that takes
// at most a tenth of a core. What it has no time for is shed before it is
// copied.
type desk struct {
	began time.Time // the zero of the desk's clock
	// gate is when the next table may be copied; closed while one is.
	gate  atomic.Int64
	queue chan *shadowJob // a place for every job: sending never blocks
	free  chan *shadowJob
}

const gateClosed = math.MaxInt64

// shadowJob is a decision that waits for its shadow.
type shadowJob struct {
	shadow *shadow
	frame  policy.Recording
	totals []float64
	mask   []byte
	row    int
}

func newDesk() *desk {
	d := &desk{began: time.Now(), queue: make(chan *shadowJob, deskPlaces), free: make(chan *shadowJob, deskPlaces)}
	for range deskPlaces {
		d.free <- &shadowJob{}
	}
	return d
}

func (d *desk) now() time.Duration { return time.Since(d.began) }

// offer queues a decision for a shadow unless there is no time for it; it never
// waits.
func (d *desk) offer(now time.Duration, sh *shadow, t *policy.Table, of *policy.Decision) (queued bool) {
	open := d.gate.Load()
	if int64(now) < open || !d.gate.CompareAndSwap(open, gateClosed) {
		return false
	}
	select {
	case j := <-d.free:
		j.shadow, j.row = sh, of.Row
		j.frame.Take(t)
		j.totals = append(j.totals[:0], of.Totals...)
		j.mask = append(j.mask[:0], of.Mask...)
		done := d.now()
		d.gate.Store(int64(done + copyRest*(done-now)))
		d.queue <- j
		return true
	default:
		d.gate.Store(open)
		return false
	}
}

// forget gives up the memory of jobs that are done.
func (d *desk) forget() {
	for range deskPlaces {
		select {
		case j := <-d.free:
			*j = shadowJob{}
			d.free <- j
		default:
			return
		}
	}
}

// work lets shadows decide until ctx ends.
func (d *desk) work(ctx context.Context) {
	rest := time.NewTimer(0)
	defer rest.Stop()
	<-rest.C
	var t policy.Table
	var out policy.Decision
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-d.queue:
			began := time.Now()
			j.shadow.decide(ctx, j, &t, &out)
			if j.shadow.over.Load() {
				*j = shadowJob{} // a shadow that has ended keeps no memory
			}
			j.shadow = nil
			d.free <- j
			rest.Reset(deskRest * time.Since(began))
		}
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
	}
}

// shadow is a revision that decides on the side.
type shadow struct {
	rev    *policy.Revision
	sample atomic.Uint64 // bits of a float64
	seen   atomic.Uint64
	chosen atomic.Uint64 // by the sample
	shed   atomic.Uint64
	over   atomic.Bool
	life   context.Context //nolint:containedctx // ends with the shadow, and its call with it
	quit   context.CancelFunc

	// use is held while the revision decides, by the desk alone; it is never
	// waited for. Whoever comes last closes the revision.
	use sync.Mutex

	mu    sync.Mutex // guards count
	count shadowCount
}

// shadowCount is what a shadow's decisions came to.
type shadowCount struct {
	decided, agreed, masked, compared, loads uint64
	regret, worst                            float64
	loadActive, loadShadow                   float64
	fuel                                     uint64
	took                                     time.Duration
	faults                                   map[string]uint64
}

func newShadow(rev *policy.Revision, sample float64) *shadow {
	sh := &shadow{rev: rev, count: shadowCount{faults: map[string]uint64{}}}
	sh.life, sh.quit = context.WithCancel(context.Background())
	sh.setSample(sample)
	return sh
}

func (sh *shadow) setSample(share float64) { sh.sample.Store(math.Float64bits(share)) }

// shadowSalt keeps the sample apart from what else the seed draws.
const shadowSalt = 0x736861646f77 // "shadow"

func (sh *shadow) samples(seed uint64) bool {
	share := math.Float64frombits(sh.sample.Load())
	return share >= 1 || float64(policy.SplitMix64(seed^shadowSalt)>>11)*(1.0/(1<<53)) < share
}

// decide decides a job and compares.
func (sh *shadow) decide(ctx context.Context, j *shadowJob, t *policy.Table, d *policy.Decision) {
	sh.use.Lock()
	if !sh.over.Load() {
		sh.decideOpen(ctx, j, t, d)
	}
	sh.use.Unlock()
	if sh.over.Load() {
		sh.rev.Retire()
	}
}

func (sh *shadow) decideOpen(ctx context.Context, j *shadowJob, t *policy.Table, d *policy.Decision) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(sh.life, cancel)()
	began := time.Now()
	lacking := j.frame.Table(t, sh.rev.Columns())
	var err error
	if len(lacking) == 0 {
		err = sh.rev.Replay(ctx, t, d)
	}
	if ctx.Err() != nil {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := &sh.count
	defer func() { c.took += time.Since(began) }()
	if len(lacking) > 0 {
		c.faults["missing_column"]++
		return
	}
	c.fuel += d.Fuel
	if reason := faultReason(err, d); reason != "" {
		c.faults[reason]++
	}
	if err == nil {
		c.decided++
		c.compare(j, d.Row)
	}
}

// compare looks at the shadow's pick with the eyes of the one that decided.
func (c *shadowCount) compare(j *shadowJob, row int) {
	if row == j.row {
		c.agreed++
	}
	c.load(j, row)
	if len(j.mask) > row && j.mask[row] == 0 {
		c.masked++
		return
	}
	if len(j.totals) <= max(row, j.row) {
		return
	}
	regret := j.totals[j.row] - j.totals[row]
	c.compared++
	c.regret += regret
	c.worst = max(c.worst, regret)
}

// load compares the loads of the two picks with the mean.
func (c *shadowCount) load(j *shadowJob, row int) {
	loads, ok := j.frame.Column(abi.ColLoadActiveRequests.String())
	if !ok {
		return
	}
	mean := 0.0
	for _, v := range loads {
		mean += v / float64(len(loads))
	}
	c.loads++
	c.loadActive += loads[j.row] - mean
	c.loadShadow += loads[row] - mean
}

// end lets the revision close: now, or when its call has ended.
func (sh *shadow) end() error {
	sh.over.Store(true)
	sh.quit()
	if !sh.use.TryLock() {
		return nil
	}
	sh.rev.Retire()
	sh.use.Unlock()
	return sh.rev.CloseErr()
}

// faultReason is the reason of a replay's fault, empty for none.
func faultReason(err error, d *policy.Decision) string {
	if fault, ok := errors.AsType[*policy.Fault](err); ok {
		return fault.Reason
	}
	if err != nil {
		return "error"
	}
	if d.Fault != nil { // one that was skipped
		return d.Fault.Reason
	}
	return ""
}
