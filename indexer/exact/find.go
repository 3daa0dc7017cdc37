package exact

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

	slots [kvcache.Tiers][]uint32 // of each asked worker, plus 1; 0 where it has nothing on the tier
	tiers [kvcache.Tiers]*runtrie.Query
	used  [kvcache.Tiers]bool // whether anybody has something on the tier
}

func newQuery() *query {
	q := &query{}
	for t := range q.tiers {
		q.tiers[t] = runtrie.NewQuery()
	}
	return q
}

// Find implements indexer.Indexer. It takes no lock, and allocates nothing once its scratch has grown.
func (x *Index) Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
	out = out[:len(workers)]
	clear(out)
	q, _ := x.queries.Get().(*query)
	if q == nil {
		q = newQuery()
	}
	pinned := q.tiers[kvcache.Device]
	x.trie.Pin(pinned)
	x.prepare(q, workers)
	for t, of := range q.tiers {
		if !q.used[t] {
			continue
		}
		x.trie.Find(of, blocks)
		for i, slot := range q.slots[t] {
			if slot != 0 {
				extend(&out[i], kvcache.Tier(t), of.Length(slot-1))
			}
		}
	}
	x.trie.Unpin(pinned)
	x.queries.Put(q)
}

// extend sets the field of tier t to what brings the sum up to length.
func extend(o *kvcache.Overlap, t kvcache.Tier, length uint32) {
	switch t {
	case kvcache.Device:
		o.Device = length
	case kvcache.Host:
		o.Host = beyond(length, o.Device)
	case kvcache.Disk:
		o.Disk = beyond(length, o.Device+o.Host)
	case kvcache.Shared:
		o.Shared = beyond(length, o.Device+o.Host+o.Disk)
	}
}

// beyond is by how much a length is more than what faster tiers have. It was looked up later than that, and may be less.
func beyond(length, faster uint32) uint32 { return length - min(length, faster) }

// prepare looks the workers up. A query that had the same ones, as most have, knows them already.
func (x *Index) prepare(q *query, workers []fleet.Worker) {
	version := x.version.Load()
	if q.version == version && slices.Equal(q.asked, workers) {
		return
	}
	q.version, q.asked = version, append(q.asked[:0], workers...)
	for t := range q.tiers {
		q.tiers[t].Reset()
		q.slots[t], q.used[t] = q.slots[t][:0], false
	}
	for _, w := range workers {
		h := x.holder(w, false)
		for t := range q.tiers {
			slot := uint32(0)
			if h != nil {
				slot = h.found[t].Load()
			}
			if slot != 0 {
				q.tiers[t].Ask(slot - 1)
				q.used[t] = true
			}
			q.slots[t] = append(q.slots[t], slot)
		}
	}
}
