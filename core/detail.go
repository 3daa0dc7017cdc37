package core

import (
	"slices"

	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// lookBeside finds what each rank of the chosen worker holds, candidate or not, for a
// request that asks for detail. The index is foreign: no lock is held.
func (a *attempt) lookBeside(p *Partition) {
	if !a.req.Detail {
		return
	}
	chosen := a.view.rows[a.rows[a.decision.Row]]
	ranks := chosen.member.record.Ranks()
	workers, overlaps := make([]fleet.Worker, len(ranks)), make([]kvcache.Overlap, len(ranks))
	for i, rank := range ranks {
		workers[i] = fleet.Worker{ID: chosen.worker.ID, Rank: rank}
	}
	a.find(p, workers, overlaps)
	a.beside = make([]RankOverlap, len(ranks))
	for i, w := range workers {
		if w == chosen.worker {
			overlaps[i] = a.overlaps[a.decision.Row] // what was decided on
		}
		a.beside[i] = RankOverlap{Worker: w, Name: chosen.member.record.Name, Overlap: overlaps[i]}
	}
}

// detail is what the choice of a row is expected to bring; nil where nobody asks. mu
// must be held.
func (a *attempt) detail(p *Partition, m *member, row int) *Detail {
	if !a.req.Detail {
		return nil
	}
	d := &Detail{
		Sequences: slices.Clone(a.sequences), Ranks: a.beside,
		UncachedTokens: a.tokens - int(a.cached(row, p.blockSize)), DecodeBlocks: a.decodeBlocks(row, p.blockSize),
		PrefillTokens: a.loads[row].PrefillTokens, MaxBatchedTokens: m.record.MaxBatchedTokens, TotalKVBlocks: m.record.TotalKVBlocks,
	}
	busy := &p.class(a).Busy
	if prefill := (queue.Busy{PrefillTokens: busy.PrefillTokens, PrefillFraction: busy.PrefillFraction}); prefill.Enabled() {
		holds := prefill.Holds(float64(d.PrefillTokens), 0, int64(d.MaxBatchedTokens))
		d.PrefillBusy = &holds
	}
	if busy.ActiveRequests > 0 {
		full := busy.Full(a.loads[row].ActiveRequests)
		d.DecodeBusy = &full
	}
	return d
}

// size is about what the detail holds in memory, when it is kept.
func (d *Detail) size() int64 {
	if d == nil {
		return 0
	}
	const fixed, each = 160, 48
	return fixed + 8*int64(len(d.Sequences)) + each*int64(len(d.Ranks))
}
