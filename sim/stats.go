package sim

import (
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// keptCancellations is how many of the last cancelled requests are told.
const keptCancellations = 64

// cancellation is one request whose client went away.
type cancellation struct {
	ID               string `json:"id"`
	Rank             int    `json:"rank"`
	CompletionTokens int    `json:"completion_tokens"`
	AtUnixNano       int64  `json:"at_unix_nano"`
}

// cancellations keeps the last ones. Safe for concurrent use.
type cancellations struct {
	mu   sync.Mutex // guards last
	last []cancellation
}

func (c *cancellations) add(id string, rank, made int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.last) == keptCancellations {
		c.last = slices.Delete(c.last, 0, 1)
	}
	c.last = append(c.last, cancellation{ID: id, Rank: rank, CompletionTokens: made, AtUnixNano: time.Now().UnixNano()})
}

func (c *cancellations) list() []cancellation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]cancellation{}, c.last...)
}

// rankStats is one rank in GET /sim/stats.
type rankStats struct {
	Rank             int    `json:"rank"`
	Requests         uint64 `json:"requests"`
	Running          int    `json:"running"`
	Waiting          int    `json:"waiting"`
	Cancelled        uint64 `json:"cancelled"`
	Blocks           int    `json:"blocks"`
	QueriedTokens    uint64 `json:"queried_tokens"`
	CachedTokens     uint64 `json:"cached_tokens"`
	NextSeq          uint64 `json:"next_seq"`
	DroppedBatches   uint64 `json:"dropped_batches"`
	ReplaysAnswered  uint64 `json:"replays_answered"`
	ReplaysDisturbed uint64 `json:"replays_disturbed"`
}

// stats serves GET /sim/stats. The sum's requests are all generation requests
// that arrived, a rank's are those that reached its queue; cancelled are those
// whose client went away (rank -1: held by a fault before a rank was chosen).
// A restart resets none of them. Event numbers are 0 when events are off.
func (e *Engine) stats(x *exchange) {
	body := struct {
		Name          string         `json:"name"`
		Requests      uint64         `json:"requests"`
		Running       int            `json:"running"`
		Waiting       int            `json:"waiting"`
		Cancelled     uint64         `json:"cancelled"`
		Restarts      uint64         `json:"restarts"`
		Cancellations []cancellation `json:"cancellations"`
		// UnloadedInUse counts adapters that were unloaded while a request used them.
		UnloadedInUse uint64      `json:"unloaded_in_use"`
		Ranks         []rankStats `json:"ranks"`
	}{Name: e.cfg.Name, Requests: e.received.Load(), Cancelled: e.strays.Load(), Restarts: e.restarts.Load(), UnloadedInUse: e.adapters.unloadedInUse()}
	for _, r := range e.ranks {
		s := r.state()
		rs := rankStats{
			Rank: r.id, Requests: s.requests, Running: len(s.running), Waiting: len(s.waiting), Cancelled: s.canceled,
			Blocks: s.blocks, QueriedTokens: s.queries, CachedTokens: s.hits,
		}
		if e.publisher != nil {
			e.publisher.counts(&rs)
		}
		body.Running += rs.Running
		body.Waiting += rs.Waiting
		body.Cancelled += rs.Cancelled
		body.Ranks = append(body.Ranks, rs)
	}
	body.Cancellations = e.cancellations.list() // after the counts, which it must not fall behind
	x.reply(fasthttp.StatusOK, body)
}

// blocks serves GET /sim/blocks: the hashes of everything that is cached, in the
// form in which the router's partition view lists what it believes.
func (e *Engine) blocks(x *exchange) {
	type rankBlocks struct {
		Rank   int                 `json:"rank"`
		Hashes map[string][]string `json:"hashes"`
	}
	var body struct {
		Ranks []rankBlocks `json:"ranks"`
	}
	for _, r := range e.ranks {
		hashes := map[string][]string{"device": r.hashes(e.cfg.HashForm)}
		body.Ranks = append(body.Ranks, rankBlocks{Rank: r.id, Hashes: hashes})
	}
	x.reply(fasthttp.StatusOK, body)
}
