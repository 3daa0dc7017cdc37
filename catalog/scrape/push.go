package scrape

import (
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
)

// Sockets listen to the load sockets of engines. What they hear goes to Pushed.
type Sockets interface {
	// Listen begins to listen for a rank of a worker of that name.
	Listen(w fleet.Worker, name, endpoint string) error
	// Unlisten ends that; an unknown rank is no error.
	Unlisten(w fleet.Worker)
}

type noSockets struct{}

func (noSockets) Listen(fleet.Worker, string, string) error { return nil }
func (noSockets) Unlisten(fleet.Worker)                     {}

// UseSockets has the scraper listen to the load sockets of workers. endpoints gives
// those of a worker by rank, none if it has no such sockets. It must be called
// before Run.
func (s *Scraper) UseSockets(sockets Sockets, endpoints func(catalog.View) map[int]string) {
	s.sockets, s.endpoints = sockets, endpoints
}

// Push is what an engine says of a rank by itself. A number below 0 is one that it
// does not say.
type Push struct {
	At              time.Time // when it came
	Running, Queued int64     // requests
	// Tokens are held in the KV cache, which has room for MaxTokens; 0 stands for
	// unknown there.
	Tokens, MaxTokens int64
}

// Pushed takes what an engine said of a rank. A rank that is not asked is ignored.
// It takes no lock.
func (s *Scraper) Pushed(w fleet.Worker, p Push) {
	t := (*s.table.Load())[w.ID]
	c := t.cell(w.Rank)
	if c == nil {
		return
	}
	v := nothing()
	v.running = s.count(float64(p.Running))
	v.waiting = s.count(float64(p.Queued))
	v.usedTokens = s.count(float64(p.Tokens))
	v.maxTokens = s.count(float64(p.MaxTokens))
	if v.maxTokens == 0 {
		v.maxTokens = -1
	}
	if r, ok := v.report(p.At, t.page.Load()); ok {
		s.counters.pushed.Add(1)
		c.offer(&r)
	}
}

// count takes over a number of requests, blocks or tokens.
func (s *Scraper) count(v float64) float64 {
	if v == -1 {
		return -1
	}
	if !(v >= 0 && v <= maxCount) {
		s.counters.refused.Add(1)
		return -1
	}
	return v
}

// values is what was read of one rank; below 0 is unknown.
type values struct {
	running, waiting      float64 // requests
	usage                 float64 // part of the KV cache, 0 to 1
	used, total           float64 // blocks
	usedTokens, maxTokens float64
}

func nothing() values { return values{-1, -1, -1, -1, -1, -1, -1} }

// report makes the report of a rank with blocks of page tokens, 0 where that is
// not known. ok is false when nothing is known of its load.
func (v values) report(at time.Time, page int64) (r load.Report, ok bool) {
	r = load.Report{
		At: at, Queued: int64(v.waiting), Running: int64(v.running),
		KVUsed: int64(v.used), KVTotal: int64(v.total), KVUsage: v.usage,
	}
	if page > 0 && r.KVUsed < 0 && v.usedTokens >= 0 {
		r.KVUsed = (int64(v.usedTokens) + page - 1) / page
	}
	if page > 0 && r.KVTotal < 0 && v.maxTokens > 0 {
		r.KVTotal = int64(v.maxTokens) / page
	}
	if r.KVUsage < 0 && v.usedTokens >= 0 && v.maxTokens > 0 {
		r.KVUsage = min(v.usedTokens/v.maxTokens, 1)
	}
	return r, r.Queued >= 0 || r.Running >= 0 || r.KVUsed >= 0 || r.KVUsage >= 0
}
