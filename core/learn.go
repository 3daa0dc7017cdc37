package core

import (
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// Learn tells the index of a partition that another router booked a prompt, given by its
// local block hashes, exact or not, on a rank: see KvIndex.Record. It is false where there is no such partition or rank. It
// keeps nothing of blocks and does not block.
func (c *SelectionCore) Learn(key fleet.PartitionKey, w fleet.Worker, blocks []kvcache.BlockHash, exact bool) bool {
	p := c.directory.Load().partitions[key.Normalised()]
	if p == nil {
		return false
	}
	m := p.view.Load().byID[w.ID]
	if m == nil || !m.record.Owns(w.Rank) {
		return false
	}
	p.learn(w, m.generation, blocks, exact)
	return true
}

// learn tells the index that a prompt was booked on a rank of a record's generation. It is
// called without the partition's lock, so that the rank may leave meanwhile: then the index
// has to forget it once more.
func (p *Partition) learn(w fleet.Worker, generation uint64, blocks []kvcache.BlockHash, exact bool) {
	if len(blocks) == 0 {
		return
	}
	p.index.Record(w, blocks, exact)
	if !p.view.Load().has(w, generation) {
		p.index.Forget(w)
	}
}

// has tells whether a rank of a record's generation is there.
func (v *view) has(w fleet.Worker, generation uint64) bool {
	m := v.byID[w.ID]
	return m != nil && m.generation == generation && m.record.Owns(w.Rank)
}
