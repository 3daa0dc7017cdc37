package host

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// A module with state none says that equal frames give equal bits, on any
// instance. The self-test looks at that before the module serves; the audit
// keeps looking: one call of many is run again from its recorded frame, on a
// fresh instance and off the request path.

const (
	// auditEvery is how many live calls there are to one that is audited.
	auditEvery = 1024
	// auditQueue bounds the calls that wait for their second run. When all are
	// taken a call is let go unaudited, counted.
	auditQueue = 4
	// auditShare is what part of a core the audits of a runtime may use: one of
	// this many. Above it calls are let go, too.
	auditShare = 20
)

// Results of an audit: the values of a metric's label.
const (
	auditEqual   = "equal"
	auditUnequal = "unequal"
	auditFault   = "fault"
	auditShed    = "shed"
	auditSkipped = "skipped"
)

// auditTurn chooses the calls of a stage that are audited: one of each
// auditEvery, by chance, so that no guest can count them out.
type auditTurn struct{ calls, next atomic.Uint64 }

func firstAudit() uint64 { return 1 + rand.Uint64N(auditEvery) }

// take tells whether this call is one.
func (a *auditTurn) take() bool {
	n, next := a.calls.Add(1), a.next.Load()
	if n < next {
		return false
	}
	return a.next.CompareAndSwap(next, ((n-1)/auditEvery+1)*auditEvery+firstAudit())
}

// auditRecord is one call with its result. The memory is used again.
type auditRecord struct {
	stage *stage
	shape *shape
	frame policy.Recording
	mask  []byte // what the call was made with; nil for all kept
	masks []byte // memory of mask
	code  abi.GuestCode
	out   result
}

// auditOf records a call that is about to be made; nil for most. Then the
// record is given back by audit or dropAudit.
func (s *stage) auditOf(c *call) *auditRecord {
	if c.quiet || s.pool.module.manifest.State != abi.StateNone || !s.audits.take() {
		return nil
	}
	record := s.rt.auditor.record()
	if record == nil {
		s.countAudit(auditShed)
		return nil
	}
	record.stage = s
	record.frame.Take(c.table)
	record.mask = nil
	if c.mask != nil {
		record.masks = append(record.masks[:0], c.mask...)
		record.mask = record.masks
	}
	return record
}

// dropAudit gives a record back whose call gave no result.
func (s *stage) dropAudit(record *auditRecord) {
	if record != nil {
		s.rt.auditor.free <- record
	}
}

// audit hands a recorded call over with its result.
func (s *stage) audit(record *auditRecord, in *instance, code abi.GuestCode, out *result) {
	if record == nil {
		return
	}
	if in.region.refused > 0 { // whatever it made of that, another would not
		s.countAudit(auditSkipped)
		s.dropAudit(record)
		return
	}
	record.shape, record.code = in.shape, code
	record.out = result{
		scores: append(record.out.scores[:0], out.scores...), keep: append(record.out.keep[:0], out.keep...), choice: out.choice,
	}
	s.rt.pools.retain(s.key) // the caller has a reference
	s.rt.auditor.submit(record)
}

func (s *stage) countAudit(result string) {
	s.rt.metrics.audits.WithLabelValues(s.pool.module.manifest.Name, result).Inc()
}

// auditor runs audits on one goroutine, which the first one starts and close
// waits for. Safe for concurrent use.
type auditor struct {
	rt    *Runtime
	free  chan *auditRecord // capacity auditQueue: all records fit
	queue chan *auditRecord // capacity auditQueue: so nobody blocks
	stop  atomic.Bool
	next  atomic.Int64 // Unix time in ns before which none may be recorded

	mu      sync.Mutex // guards all below
	started bool
	closed  bool
	work    sync.WaitGroup

	table policy.Table // of the goroutine
	out   result       // of the goroutine
}

func newAuditor(r *Runtime) *auditor {
	a := &auditor{rt: r, free: make(chan *auditRecord, auditQueue), queue: make(chan *auditRecord, auditQueue)}
	for range auditQueue {
		a.free <- &auditRecord{}
	}
	return a
}

// record takes a free record; nil when there is none, or not now.
func (a *auditor) record() *auditRecord {
	if time.Now().UnixNano() < a.next.Load() {
		return nil
	}
	select {
	case r := <-a.free:
		return r
	default:
		return nil
	}
}

func (a *auditor) submit(r *auditRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		a.letGo(r)
		return
	}
	if !a.started {
		a.started = true
		a.work.Go(a.run)
	}
	a.queue <- r
}

// close ends the audit at hand and drops those that wait.
func (a *auditor) close() {
	a.mu.Lock()
	a.stop.Store(true)
	if !a.closed {
		a.closed = true
		close(a.queue)
	}
	a.mu.Unlock()
	a.work.Wait()
}

func (a *auditor) run() {
	for r := range a.queue {
		if !a.stop.Load() {
			began := time.Now()
			a.audit(r)
			now := time.Now()
			a.next.Store(now.Add((auditShare - 1) * now.Sub(began)).UnixNano())
		}
		a.letGo(r)
	}
}

// letGo gives back what a record holds.
func (a *auditor) letGo(r *auditRecord) {
	key := r.stage.key
	r.stage, r.shape = nil, nil
	a.free <- r
	if err := a.rt.pools.release(key); err != nil {
		a.rt.log.Error("plugin audit", slog.Any("err", err))
	}
}

// audit runs one call again and reports what came of it.
func (a *auditor) audit(r *auditRecord) {
	s := r.stage
	differs, err := contained("audit", func() (string, error) { return a.again(r) })
	switch {
	case a.stop.Load():
		return
	case errors.Is(err, errMemory):
		s.countAudit(auditSkipped)
		return
	case err != nil:
		s.countAudit(auditFault)
		return
	case differs == "":
		s.countAudit(auditEqual)
		return
	}
	s.countAudit(auditUnequal)
	fault := &policy.Fault{
		Code: string(abi.ENondeterministic), Reason: reasonOtherBits, Counts: true,
		Detail: fmt.Sprintf("%d rows, seed %d: run again from its frame the call gave %s", len(r.frame.Rows()), a.table.Seed, differs),
	}
	_ = s.fault(fault) // names the stage and counts
	if f := s.failed.Load(); f != nil {
		(*f)(fault)
	}
}

// again runs a call from its record on a fresh instance: with the fuel of a
// set-up and no deadline. It tells how the result differs, "" when it does not.
func (a *auditor) again(r *auditRecord) (differs string, err error) {
	s := r.stage
	m := s.pool.module
	in, err := a.rt.newBound(m, s.pool.config, r.shape, terms{log: &guestLog{mute: true}, stop: &a.stop})
	if err != nil {
		return "", err
	}
	defer in.close()
	r.frame.Table(&a.table, m.columns)
	c := call{kind: s.kind, number: s.number, table: &a.table, mask: r.mask, budget: abi.FuelSetUp, quiet: true}
	code, _, fault := in.run(&c)
	if fault == nil && code == abi.GuestOK {
		a.out.scores = append(a.out.scores[:0], r.out.scores...)
		a.out.keep = append(a.out.keep[:0], r.mask...)
		for len(a.out.keep) < len(r.out.keep) {
			a.out.keep = append(a.out.keep, 1)
		}
		a.out.choice = policy.Choice{}
		fault = in.take(&c, &a.out)
	}
	if in.region.refused > 0 {
		return "", errMemory
	}
	if fault != nil {
		return "", fault
	}
	return r.compare(code, &a.out), nil
}

// compare tells how a second result differs from the first.
func (r *auditRecord) compare(code abi.GuestCode, out *result) string {
	if code != r.code {
		return fmt.Sprintf("code %d instead of %d", code, r.code)
	}
	if code != abi.GuestOK {
		return ""
	}
	for row, was := range r.out.keep {
		if out.keep[row] != was {
			return fmt.Sprintf("mask byte %d instead of %d in row %d", out.keep[row], was, row)
		}
	}
	for row, was := range r.out.scores {
		if math.Float64bits(out.scores[row]) != math.Float64bits(was) {
			return fmt.Sprintf("score %v instead of %v in row %d", out.scores[row], was, row)
		}
	}
	if out.choice != r.out.choice {
		return fmt.Sprintf("row %d (host draws: %t) instead of row %d (%t)",
			out.choice.Row, out.choice.HostDraws, r.out.choice.Row, r.out.choice.HostDraws)
	}
	return ""
}
