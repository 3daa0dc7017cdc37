package core

import (
	"slices"

	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// lookBeside finds what each rank of the chosen worker holds, for a request that asks
// for detail. The index is foreign: no lock is held.
func (a *attempt) lookBeside(p *Partition) {
	if !a.req.Detail {
		return
	}
	chosen := &a.view.rows[a.rows[a.decision.Row]]
	ranks := chosen.member.record.Ranks()
	a.beside = make([]RankOverlap, 0, len(ranks))
	for i, w := range a.workers { // in the order of ranks
		if w.ID == chosen.worker.ID {
			a.beside = append(a.beside, RankOverlap{Worker: w, Name: chosen.member.record.Name, Overlap: a.overlaps[i]})
		}
	}
	if len(a.beside) < len(ranks) {
		a.askBeside(p, chosen, ranks)
	}
}

// askBeside asks the index, for some ranks of the worker are no candidates. What was
// decided on stays.
func (a *attempt) askBeside(p *Partition, chosen *viewRow, ranks []uint32) {
	workers, overlaps := make([]fleet.Worker, len(ranks)), make([]kvcache.Overlap, len(ranks))
	for i, rank := range ranks {
		workers[i] = fleet.Worker{ID: chosen.worker.ID, Rank: rank}
	}
	a.find(p, workers, overlaps)
	known := a.beside
	a.beside = make([]RankOverlap, len(ranks))
	for i, w := range workers {
		if at := slices.IndexFunc(known, func(r RankOverlap) bool { return r.Worker == w }); at >= 0 {
			overlaps[i] = known[at].Overlap
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
		Ranks:          a.beside,
		UncachedTokens: a.tokens - int(a.cached(row, p.blockSize)), DecodeBlocks: a.decodeBlocks(row, p.blockSize),
		PrefillTokens: a.loads[row].PrefillTokens, MaxBatchedTokens: m.record.MaxBatchedTokens, TotalKVBlocks: m.record.TotalKVBlocks,
	}
	if a.req.Kind == Book {
		d.Sequences = slices.Clone(a.sequences)
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
