package scrape

import (
	"net"
	"net/url"
	"sync/atomic"

	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
)

// table is the workers that are asked. It is immutable; what it points at is not.
type table map[fleet.WorkerID]*target

// report is the newest report of a rank; nil where there is none. Nobody changes
// what it points at.
func (t *table) report(w fleet.Worker) *load.Report {
	c := (*t)[w.ID].cell(w.Rank)
	if c == nil {
		return nil
	}
	return c.Load()
}

// target is a worker that is asked: what all may read of it.
type target struct {
	id       fleet.WorkerID
	place    place
	first    uint32 // rank of the first cell
	cells    []cell
	page     atomic.Int64 // tokens of a block; 0 while unknown
	adapters adapterList
}

// place is where a worker's reports come from. A worker with another place is
// another target: what the old one said is not of it.
type place struct {
	url, engine, model string
	first, ranks       int
}

func placeOf(r fleet.Record) place {
	return place{url: r.URL, engine: r.Engine, model: r.Model, first: r.DPStart, ranks: r.DPSize}
}

func newTarget(r fleet.Record) *target {
	return &target{id: r.ID, place: placeOf(r), first: uint32(r.DPStart), cells: make([]cell, max(r.DPSize, 0))}
}

// cell is the rank's; nil for a rank that the worker has not, and of no target.
func (t *target) cell(rank uint32) *cell {
	if t == nil || rank < t.first || rank-t.first >= uint32(len(t.cells)) {
		return nil
	}
	return &t.cells[rank-t.first]
}

// cell holds the newest report of a rank.
type cell struct{ atomic.Pointer[load.Report] }

// offer puts a report in place of an older one.
func (c *cell) offer(r *load.Report) {
	for {
		was := c.Load()
		if was != nil && was.At.After(r.At) || c.CompareAndSwap(was, r) {
			return
		}
	}
}

// route is how a worker is asked.
type route struct {
	address string // host and port
	host    string // of the Host header
	path    string // before that of a request
}

func routeTo(base string) (route, error) {
	u, err := url.Parse(base)
	if err != nil {
		return route{}, err
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	return route{address: net.JoinHostPort(u.Hostname(), port), host: u.Host, path: u.EscapedPath()}, nil
}
