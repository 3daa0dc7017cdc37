package core

import (
	"maps"
	"time"

	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
)

// overloadInterval is how long nothing may say that a rank is overloaded before
// it counts as clear again.
const overloadInterval = time.Second

// reportMaxAge is how old an engine's report may be and still count for more than
// our projection.
const reportMaxAge = 10 * time.Second

// Bounds of how long a worker's refusal keeps it out.
const (
	refusalDefault = time.Second
	refusalMost    = 30 * time.Second
)

// rankReport is what the engine said last of a rank and whether the rank is
// overloaded by that and by our own projection.
type rankReport struct {
	load.Report
	known bool
	latch load.Latch
}

// overloaded tells whether a rank is over the busy limit: by our projection and
// the engine's report together, without a report by ours alone, until an interval
// was clean. mu must be held.
func (p *Partition) overloaded(r *viewRow, now time.Time) bool {
	limit := p.core.overload.Load()
	if !limit.Enabled() {
		return false
	}
	s := &p.reports[r.slot]
	l, _ := p.tracker.Load(r.slot, now)
	batch, total := int64(r.member.record.MaxBatchedTokens), int64(r.member.record.TotalKVBlocks)
	reported, known := false, false
	if s.known && s.Fresh(now, reportMaxAge) {
		l.DecodeBlocks = s.UsedBlocks(l.DecodeBlocks, total, now, reportMaxAge)
		reported, known = limit.Reported(s.Report, total)
	}
	return s.latch.Observe(limit.Projected(l, batch, total), reported, known, now, overloadInterval)
}

// askReports asks the host what the engines reported of the candidates. No lock
// is held.
func (p *Partition) askReports(a *attempt) {
	host := p.core.host.Load
	if host == nil {
		return
	}
	n := len(a.rows)
	if cap(a.reports) < n {
		a.reports = make([]load.Report, n)
		a.reported = make([]bool, n)
	}
	a.reports, a.reported = a.reports[:n], a.reported[:n]
	for i, row := range a.rows {
		a.reports[i], a.reported[i] = host.Report(a.view.rows[row].worker)
	}
}

// keepReports notes the reports for those who look under the lock. mu must be
// held.
func (p *Partition) keepReports(a *attempt) {
	if p.core.host.Load == nil {
		return
	}
	for i, row := range a.rows {
		s := &p.reports[a.view.rows[row].slot]
		s.Report, s.known = a.reports[i], a.reported[i]
	}
}

// report is what the engine reported of the candidate in a row.
func (a *attempt) report(row int) (load.Report, bool) {
	if row >= len(a.reported) || !a.reported[row] {
		return load.Report{}, false
	}
	return a.reports[row], true
}

// Refused reports that a worker has answered that it takes no more (429 or 503):
// it is passed over, as long as anybody else is eligible, until its engine's next
// report or, where it sends none, for the time that it asked for: a second if
// retryAfter is 0, at most 30 s. An unknown id is ignored. Safe for concurrent
// use; it is short.
func (c *SelectionCore) Refused(id fleet.WorkerID, retryAfter time.Duration) {
	if retryAfter <= 0 {
		retryAfter = refusalDefault
	}
	c.members.Lock()
	defer c.members.Unlock()
	entry, ok := c.directory.Load().workers[id]
	if !ok {
		return
	}
	now := time.Now()
	generation := entry.partition.view.Load().byID[id].generation
	c.refusals.Store(c.refusals.Load().changed(now, func(workers map[fleet.WorkerID]refusal) {
		workers[id] = refusal{generation: generation, at: now, until: now.Add(min(retryAfter, refusalMost))}
	}))
}

// refusals is an immutable table of the workers that refused a request lately. A
// nil table is empty.
type refusals struct{ workers map[fleet.WorkerID]refusal }

type refusal struct {
	generation uint64
	at, until  time.Time
}

// changed returns a changed copy without what has ended; nil when nothing is
// left.
func (t *refusals) changed(now time.Time, change func(map[fleet.WorkerID]refusal)) *refusals {
	var was map[fleet.WorkerID]refusal
	if t != nil {
		was = t.workers
	}
	if workers := remembered(was, change, func(w refusal) bool { return now.Sub(w.at) > refusalMost }); len(workers) > 0 {
		return &refusals{workers}
	}
	return nil
}

// remembered is a changed copy of what is remembered of workers, without what is
// over.
func remembered[V any](was map[fleet.WorkerID]V, change func(map[fleet.WorkerID]V), over func(V) bool) map[fleet.WorkerID]V {
	workers := make(map[fleet.WorkerID]V, len(was)+1)
	maps.Copy(workers, was)
	change(workers)
	maps.DeleteFunc(workers, func(_ fleet.WorkerID, v V) bool { return over(v) })
	return workers
}

// forgetOver lets the tables of refusals and inhibitions go that nothing is left
// of: while there is one each request looks at it.
func (c *SelectionCore) forgetOver(now time.Time) {
	if c.refusals.Load() == nil && c.inhibited.Load() == nil {
		return
	}
	c.members.Lock()
	defer c.members.Unlock()
	if t := c.refusals.Load(); t != nil && t.changed(now, func(map[fleet.WorkerID]refusal) {}) == nil {
		c.refusals.Store(nil)
	}
	if t := c.inhibited.Load(); t != nil && t.changed(now, func(map[fleet.WorkerID]inhibition) {}) == nil {
		c.inhibited.Store(nil)
	}
}

// of is a worker's refusal; ok is false when its record is another one.
func (t *refusals) of(m *member) (r refusal, ok bool) {
	if t == nil {
		return refusal{}, false
	}
	r, ok = t.workers[m.record.ID]
	return r, ok && r.generation == m.generation
}

// refusing tells whether a rank's worker still refuses: until a report that came
// after it; without reports until its time is over. mu must be held.
func (p *Partition) refusing(t *refusals, r *viewRow, now time.Time) bool {
	f, ok := t.of(r.member)
	if !ok || now.Sub(f.at) > refusalMost {
		return false
	}
	if s := &p.reports[r.slot]; s.known {
		return !s.At.After(f.at)
	}
	return now.Before(f.until)
}

// hearReports asks what the engines reported of all ranks.
func (p *Partition) hearReports() {
	host := p.core.host.Load
	if host == nil {
		return
	}
	v := p.view.Load()
	reports, known := make([]load.Report, len(v.rows)), make([]bool, len(v.rows))
	for i := range v.rows {
		reports[i], known[i] = host.Report(v.rows[i].worker)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view.Load() != v {
		return // the next look sees the others
	}
	for i := range v.rows {
		s := &p.reports[v.rows[i].slot]
		s.Report, s.known = reports[i], known[i]
	}
}

// hearRefusing asks what the engines reported of those candidates that refuse:
// they are no candidates for long enough to be asked with the others, and a
// report since then ends that.
func (p *Partition) hearRefusing(a *attempt, v *view, t *refusals) {
	host := p.core.host.Load
	if host == nil || t == nil {
		return
	}
	for _, row := range a.rows {
		r := &v.rows[row]
		if _, ok := t.of(r.member); !ok {
			continue
		}
		report, known := host.Report(r.worker)
		p.mu.Lock()
		if p.view.Load() == v {
			p.reports[r.slot].Report, p.reports[r.slot].known = report, known
		}
		p.mu.Unlock()
	}
}
