package health

import (
	"maps"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// firstShare is the share of its requests that a worker gets when it returns.
const firstShare = 0.1

// returning is an immutable table of the workers that return slowly.
type returning struct {
	since map[fleet.WorkerID]time.Time // not empty
	over  time.Duration                // how long each takes
	until time.Time                    // when the last one has returned
}

// beginReturn and those below it replace the table; mu must be held.
func (m *Monitor) beginReturn(id fleet.WorkerID, now time.Time) {
	m.replaceReturning(now, func(since map[fleet.WorkerID]time.Time) { since[id] = now })
	nudge(m.wake) // its end is due
}

func (m *Monitor) endReturn(id fleet.WorkerID, now time.Time) {
	if t := m.returning.Load(); t != nil && !t.since[id].IsZero() {
		m.replaceReturning(now, func(since map[fleet.WorkerID]time.Time) { delete(since, id) })
	}
}

// expireReturns forgets the table when it is over and tells how long it will last.
func (m *Monitor) expireReturns(now time.Time) time.Duration {
	t := m.returning.Load()
	switch {
	case t == nil:
		return idle
	case now.Before(t.until):
		return t.until.Sub(now)
	}
	m.returning.Store(nil)
	return idle
}

func (m *Monitor) replaceReturning(now time.Time, change func(since map[fleet.WorkerID]time.Time)) {
	next := &returning{since: map[fleet.WorkerID]time.Time{}, over: m.cfg.SlowStart}
	if t := m.returning.Load(); t != nil {
		maps.Copy(next.since, t.since)
	}
	change(next.since)
	for id, since := range next.since {
		end := since.Add(next.over)
		if !end.After(now) {
			delete(next.since, id)
		} else if end.After(next.until) {
			next.until = end
		}
	}
	if len(next.since) == 0 {
		next = nil
	}
	m.returning.Store(next)
}

// Narrow implements core.Eligibility: it takes workers that have just returned from
// some of the requests, more and more seldom until Config.SlowStart is over. Which
// ones, the request's seed decides. Requests with a pin, an affinity target or a
// session that binds are left alone, and so are those that would have nobody left. It
// costs one atomic load while nobody returns.
func (m *Monitor) Narrow(req *core.Request, workers []fleet.Worker, keep []bool) {
	t := m.returning.Load()
	if t == nil || req.Seed == nil || req.Pin != nil || req.Target != nil || binds(req) {
		return
	}
	now := time.Now()
	left := false
	for i := range workers {
		if keep[i] && !t.spares(workers[i].ID, *req.Seed, now) {
			left = true
			break
		}
	}
	if !left {
		return
	}
	for i := range workers {
		if keep[i] && t.spares(workers[i].ID, *req.Seed, now) {
			keep[i] = false
		}
	}
}

// binds tells whether the request follows or makes a session's binding, and so may
// have a worker of its own.
func binds(req *core.Request) bool {
	if c := req.SessionContext; c != nil && c.ID != "" {
		return !c.Advice
	}
	return req.Session != ""
}

// spares tells whether a worker is to be spared a request.
func (t *returning) spares(id fleet.WorkerID, seed uint64, now time.Time) bool {
	since, ok := t.since[id]
	if !ok {
		return false
	}
	share := firstShare + (1-firstShare)*float64(now.Sub(since))/float64(t.over)
	return draw(seed, id) >= share
}

// draw is a number from 0 to below 1 that belongs to a request and a worker.
func draw(seed uint64, id fleet.WorkerID) float64 {
	x := seed ^ uint64(id)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}
