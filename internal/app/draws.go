package app

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/frontend"
	"github.com/routerd/routerd/internal/config"
)

// draws is the core with the draws that routing.seed fixes: the n-th request of
// a partition that brings no seed of its own gets the n-th one. Safe for
// concurrent use.
type draws struct {
	*core.SelectionCore
	from atomic.Pointer[sequences]
}

var _ frontend.Selector = (*draws)(nil)

// sequences count the requests under one seed; 0 leaves drawing to the core.
type sequences struct {
	seed uint64
	of   sync.Map // fleet.PartitionKey → *atomic.Uint64
}

func newDraws(c *core.SelectionCore, r *reloads, l *live) *draws {
	d := &draws{SelectionCore: c}
	d.from.Store(&sequences{seed: l.Load().Routing.Seed})
	r.follow(settingsLast, part{keys: []string{"routing.seed"}, prepare: func(_ context.Context, now *config.Config) (prepared, error) {
		return settled(func() { d.from.Store(&sequences{seed: now.Routing.Seed}) }), nil
	}})
	return d
}

// Select makes one selection, with a draw from the sequence in force.
func (d *draws) Select(ctx context.Context, req *core.Request) (*core.Selection, error) {
	if s := d.from.Load(); s.seed != 0 && req.Seed == nil {
		req.Seed = s.next(req.Partition.Normalised())
	}
	return d.SelectionCore.Select(ctx, req)
}

func (s *sequences) next(key fleet.PartitionKey) *uint64 {
	count, ok := s.of.Load(key)
	if !ok {
		count, _ = s.of.LoadOrStore(key, &atomic.Uint64{})
	}
	n := uint64(0)
	if c, ok := count.(*atomic.Uint64); ok {
		n = c.Add(1)
	}
	drawn := policy.SplitMix64(s.seed ^ policy.SplitMix64(xxh3.HashString(key.String())+n))
	return &drawn
}
