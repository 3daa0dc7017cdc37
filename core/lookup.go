package core

import (
	"context"
	"errors"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// Lookup is a prompt to look at, without a selection. A look reads the prompt only
// while it lasts and keeps nothing.
type Lookup struct {
	Partition fleet.PartitionKey
	Prompt    Prompt
	Adapter   string
	// AssumeReuse and TrackPrefill are as those of a Request; only PotentialLoads
	// looks at them.
	AssumeReuse, TrackPrefill *bool
}

// OverlapReport is what is cached of a prompt.
type OverlapReport struct {
	Partition fleet.PartitionKey
	BlockSize int
	Blocks    int           // full blocks of the prompt
	Ranks     []RankOverlap // of ready workers, by (worker, rank)
	// Shared are the ranges of block positions that the shared cache holds.
	// SharedAsked tells whether there is one, SharedErr that it did not answer.
	Shared      []kvcache.BlockRange
	SharedAsked bool
	SharedErr   error
}

// RankOverlap is what one rank holds of a prompt.
type RankOverlap struct {
	Worker  fleet.Worker
	Name    string
	Overlap kvcache.Overlap
}

// PotentialLoad is the projected load of a rank with a prompt booked on it.
type PotentialLoad struct {
	Worker         fleet.Worker
	Name           string
	PrefillTokens  int64
	DecodeBlocks   float64
	ActiveRequests int64 // without the prompt's own
}

// Overlaps tells what every ready worker of a partition holds of a prompt, whatever
// adapters it serves. Nothing is chosen, booked, bound or recorded, and nobody waits
// for a worker. It blocks for the shared cache's deadline; without one for nothing.
// Errors are *Error, no ready worker the same as Select's, or the cause of ctx.
func (c *SelectionCore) Overlaps(ctx context.Context, q *Lookup) (*OverlapReport, error) {
	p, a, err := c.lookAt(q)
	if err != nil {
		return nil, err
	}
	defer p.give(a)
	out := &OverlapReport{Partition: p.key, BlockSize: p.blockSize, Blocks: len(a.blocks), SharedAsked: c.host.SharedCache != nil}
	if out.SharedErr = a.sharedHits(ctx, p); errors.Is(out.SharedErr, ErrNoSharedCache) {
		out.SharedAsked, out.SharedErr = false, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	out.Shared = append(out.Shared, a.shared...)
	if err := a.readyRows(p.view.Load(), p); err != nil {
		return nil, err
	}
	a.matchIndex(p)
	out.Ranks = make([]RankOverlap, len(a.rows))
	for i, row := range a.rows {
		r := &a.view.rows[row]
		out.Ranks[i] = RankOverlap{Worker: r.worker, Name: r.member.record.Name, Overlap: a.overlaps[i]}
	}
	return out, nil
}

// PotentialLoads tells what the load of every ready rank of a partition would be with
// a prompt booked there: the tokens to be prefilled and the KV blocks held, those that
// it shares with others once. It is a look as Overlaps, but does not ask the shared
// cache and blocks for nothing.
func (c *SelectionCore) PotentialLoads(_ context.Context, q *Lookup) ([]PotentialLoad, error) {
	p, a, err := c.lookAt(q)
	if err != nil {
		return nil, err
	}
	defer p.give(a)
	for {
		v := p.view.Load()
		if err := a.readyRows(v, p); err != nil {
			return nil, err
		}
		a.matchIndex(p)
		if loads := p.potentialLoads(a, v); loads != nil {
			return loads, nil
		}
	}
}

// potentialLoads projects the loads of the rows; nil when the view has changed.
func (p *Partition) potentialLoads(a *attempt, v *view) []PotentialLoad {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view.Load() != v {
		return nil
	}
	p.loadsOf(a, time.Now())
	out := make([]PotentialLoad, len(a.rows))
	for i, row := range a.rows {
		r, l := &v.rows[row], a.loads[i]
		out[i] = PotentialLoad{
			Worker: r.worker, Name: r.member.record.Name,
			PrefillTokens: l.PrefillTokens + a.demand(i, p.blockSize).PrefillTokens,
			DecodeBlocks:  a.decodeBlocks(i, p.blockSize), ActiveRequests: l.ActiveRequests,
		}
	}
	return out
}

// lookAt reads the prompt. The caller gives the attempt back.
func (c *SelectionCore) lookAt(q *Lookup) (*Partition, *attempt, error) {
	if c.closed.Load() {
		return nil, nil, ending()
	}
	req := &Request{Kind: Advisory, Prompt: q.Prompt, Adapter: q.Adapter, AssumeReuse: q.AssumeReuse, TrackPrefill: q.TrackPrefill}
	if err := req.check(); err != nil {
		return nil, nil, err
	}
	p, a, err := c.enter(q.Partition.Normalised())
	if err != nil {
		return nil, nil, err
	}
	a.req = req
	if err := a.readPrompt(p); err != nil {
		p.give(a)
		return nil, nil, err
	}
	return p, a, nil
}

// readyRows makes the ranks of the ready workers the candidates.
func (a *attempt) readyRows(v *view, p *Partition) error {
	a.view, a.rows = v, a.rows[:0]
	ejected := false
	for i := range v.rows {
		switch v.rows[i].member.lifecycle {
		case Ready:
			a.rows = append(a.rows, int32(i))
		case Ejected:
			ejected = true
		case Incomplete, Draining:
		}
	}
	switch {
	case len(a.rows) > 0:
		return nil
	case len(v.rows) == 0:
		return noWorkers(p.key)
	case ejected:
		return unavailable(CodeWorkersEjected, "the workers of model %q are ejected", p.key.Model)
	}
	return unavailable(CodeNoWorkers, "no worker of model %q is ready", p.key.Model)
}

// sharedHits asks the shared cache, where there is one, which blocks of the prompt it
// holds.
func (a *attempt) sharedHits(ctx context.Context, p *Partition) error {
	a.shared = a.shared[:0]
	host := p.core.host.SharedCache
	if host == nil {
		return nil
	}
	hits, err := host.Hits(ctx, p.key, a.prefixes, a.shared)
	if err != nil {
		return err
	}
	n := uint32(len(a.prefixes))
	for i, r := range hits { // what is beyond the prompt counts for nothing
		hits[i] = kvcache.BlockRange{Start: min(r.Start, n), End: min(r.End, n)}
	}
	a.shared = hits
	return nil
}
