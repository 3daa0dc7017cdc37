package indextest

import (
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/kvcache"
)

// Finder is what every index does. What else one does is told by its methods: those of indexer.Feed, indexer.Recorder,
// indexer.View and indexer.Snapshots, each set of them that is there, and Clear, Remove and Blocks by themselves. So where
// finds are of one object and what feeds them is another, a struct that embeds both is the index to check. Before
// anything is compared CatchUp is called, if there is one; Close ends an index that has one.
type Finder interface {
	Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap)
}

// Option tells what the model has to know of an index.
type Option func(*rules)

// TTL is how long an index counts what was recorded. The runs are in a synctest bubble, in which time passes
// by hundredths of it.
func TTL(d time.Duration) Option { return func(r *rules) { r.ttl = d } }

// MaxBlocks is how many recorded blocks an index holds of all workers together.
func MaxBlocks(n int) Option { return func(r *rules) { r.maxBlocks = n } }

// Seeds is how many random runs there are, fewer than usual for an index that takes long.
func Seeds(n int) Option { return func(r *rules) { r.seeds = min(n, seeds) } }

// rules are what options tell.
type rules struct {
	seeds     int           // runs
	ttl       time.Duration // 0 is for ever
	maxBlocks int           // 0 is no limit
}

func rulesOf(options []Option) rules {
	r := rules{seeds: seeds}
	for _, o := range options {
		o(&r)
	}
	return r
}

func (r rules) tick() time.Duration { return r.ttl / 100 }

// subject is an index by what it does; the rest is nil.
type subject struct {
	Finder
	rules rules
	feed  interface {
		Apply(w fleet.Worker, events []kvcache.Event) kvcache.Applied
	}
	holder interface {
		Clear(w fleet.Worker)
		Remove(w fleet.Worker)
	}
	recorder indexer.Recorder
	counts   interface {
		Blocks(w fleet.Worker) kvcache.TierCounts
	}
	hashes    indexer.View
	snapshots indexer.Snapshots
	evictor   Evictor
}

func newSubject(x Finder, rules rules) subject {
	s := subject{Finder: x, rules: rules}
	if feed, ok := x.(indexer.Feed); ok {
		s.feed = feed
	}
	s.holder, _ = x.(interface {
		Clear(w fleet.Worker)
		Remove(w fleet.Worker)
	})
	s.recorder, _ = x.(indexer.Recorder)
	s.counts, _ = x.(interface {
		Blocks(w fleet.Worker) kvcache.TierCounts
	})
	s.hashes, _ = x.(indexer.View)
	s.snapshots, _ = x.(indexer.Snapshots)
	s.evictor, _ = x.(Evictor)
	return s
}

// does tells whether the index does a step.
func (s *subject) does(step string) bool {
	switch step {
	case "stored", "removed", "cleared":
		return s.feed != nil
	case "clear", "remove":
		return s.holder != nil
	case "record", "forget":
		return s.recorder != nil
	case "pass":
		return s.rules.ttl > 0
	case "carry":
		return s.snapshots != nil && s.holder != nil
	case "evict":
		return s.evictor != nil
	}
	return true
}

func (s *subject) catchUp() {
	if c, ok := s.Finder.(interface{ CatchUp() }); ok {
		c.CatchUp()
	}
}

func (s *subject) close() {
	if c, ok := s.Finder.(interface{ Close() }); ok {
		c.Close()
	}
}
