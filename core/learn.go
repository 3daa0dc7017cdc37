package core

import (
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// learn tells the index where a prompt was booked. It is called without the
// partition's lock, so that the rank may leave meanwhile: then the index has to forget
// it once more.
func (p *Partition) learn(sel *Selection, blocks []kvcache.BlockHash) {
	if len(blocks) == 0 {
		return
	}
	p.index.Record(sel.Worker, blocks)
	if !p.view.Load().has(sel.Worker, sel.Reservation.Key().Generation) {
		p.index.Forget(sel.Worker)
	}
}

// has tells whether a rank of a record's generation is there.
func (v *view) has(w fleet.Worker, generation uint64) bool {
	m := v.byID[w.ID]
	return m != nil && m.generation == generation && m.record.Owns(w.Rank)
}
