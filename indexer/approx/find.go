package approx

import (
	"slices"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// query is the scratch of one find.
type query struct {
	asked   []fleet.Worker // whom the rest tells of
	version uint64         // of the index when it was made; 0 for never
	slots   []uint32       // of each asked worker, plus 1; 0 for an unknown one
	of      *runtrie.Query
}

// Find sets out[i] to how much of the prompt workers[i] holds, which counts as being on the device. It takes no lock, and
// allocates nothing once its scratch has grown. out must be at least as long as workers.
func (x *Index) Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
	out = out[:len(workers)]
	clear(out)
	q, _ := x.queries.Get().(*query)
	if q == nil {
		q = &query{of: runtrie.NewQuery()}
	}
	x.trie.Pin(q.of)
	x.prepare(q, workers)
	x.trie.Find(q.of, blocks)
	for i, slot := range q.slots {
		if slot != 0 {
			out[i].Device = q.of.Length(slot - 1)
		}
	}
	x.trie.Unpin(q.of)
	x.queries.Put(q)
}

// prepare looks the workers up. A query that had the same ones, as most have, knows them already.
func (x *Index) prepare(q *query, workers []fleet.Worker) {
	version := x.version.Load()
	if q.version == version && slices.Equal(q.asked, workers) {
		return
	}
	q.version, q.asked = version, append(q.asked[:0], workers...)
	q.of.Reset()
	q.slots = q.slots[:0]
	for _, w := range workers {
		slot := uint32(0)
		if v, ok := x.workers.Load(w); ok {
			slot = v.(*worker).slot + 1
			q.of.Ask(slot - 1)
		}
		q.slots = append(q.slots, slot)
	}
}
