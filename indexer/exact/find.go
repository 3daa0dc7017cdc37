package exact

import (
	"math/bits"
	"slices"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// query is the scratch of one find.
type query struct {
	asked   []fleet.Worker // whom the next two tell of
	version uint64         // of the list of workers when they were made; 0 for never

	slots  []int    // of each asked worker, -1 when unknown
	all    []uint64 // the set of asked slots
	active []uint64 // those that hold everything so far
	length []uint32 // by slot: how many leading blocks it holds
}

// Find implements indexer.Indexer. It allocates nothing once its scratch has grown.
func (x *Index) Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
	out = out[:len(workers)]
	clear(out)
	q, _ := x.queries.Get().(*query)
	if q == nil {
		q = &query{}
	}
	x.mu.RLock()
	x.prepare(q, workers)
	for t := kvcache.Device; t < kvcache.Tiers; t++ {
		if t > kvcache.Device && x.held[t] == 0 {
			continue
		}
		x.walk(q, blocks, t)
		for i, slot := range q.slots {
			if slot >= 0 {
				extend(&out[i], t, q.length[slot])
			}
		}
	}
	x.mu.RUnlock()
	x.queries.Put(q)
}

// extend sets the field of tier t to what brings the sum up to length.
func extend(o *kvcache.Overlap, t kvcache.Tier, length uint32) {
	switch t {
	case kvcache.Device:
		o.Device = length
	case kvcache.Host:
		o.Host = length - o.Device
	case kvcache.Disk:
		o.Disk = length - o.Device - o.Host
	case kvcache.Shared:
		o.Shared = length - o.Device - o.Host - o.Disk
	}
}

// prepare looks the workers up. A query that had the same ones, as most have, knows them already.
func (x *Index) prepare(q *query, workers []fleet.Worker) {
	if q.version == x.version && slices.Equal(q.asked, workers) {
		return
	}
	q.version, q.asked = x.version, append(q.asked[:0], workers...)
	words := (x.slots + 63) / 64
	if len(q.all) < words {
		q.all, q.active = make([]uint64, words), make([]uint64, words)
		q.length = make([]uint32, 64*words)
	}
	clear(q.all)
	q.slots = q.slots[:0]
	for _, w := range workers {
		h := x.workers[w]
		if h == nil {
			q.slots = append(q.slots, -1)
			continue
		}
		q.slots = append(q.slots, h.slot)
		q.all[h.slot>>6] |= 1 << (h.slot & 63)
	}
}

// walk sets the length of each asked slot, counting blocks on tier t and all faster ones.
func (x *Index) walk(q *query, blocks []kvcache.BlockHash, t kvcache.Tier) {
	copy(q.active, q.all)
	at, depth := x.root, uint32(0)
	for _, b := range blocks {
		if at = at.child(b); at == nil {
			break
		}
		var left uint64
		for i, was := range q.active {
			if was == 0 {
				continue
			}
			now := was & at.upTo(t, i)
			if lost := was &^ now; lost != 0 {
				q.settle(i, lost, depth)
				q.active[i] = now
			}
			left |= now
		}
		if left == 0 {
			return
		}
		depth++
	}
	for i, still := range q.active {
		q.settle(i, still, depth)
	}
}

// settle sets the length of the slots whose bits are set in word i.
func (q *query) settle(i int, set uint64, length uint32) {
	for ; set != 0; set &= set - 1 {
		q.length[64*i+bits.TrailingZeros64(set)] = length
	}
}
