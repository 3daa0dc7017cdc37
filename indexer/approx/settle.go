package approx

import (
	"slices"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// decision is one that is looked at without the lock.
type decision struct {
	pin  uint32
	end  runtrie.Ref
	at   time.Duration
	path []kvcache.BlockHash
}

// Settle lets go of decisions of w that end with one of the blocks and of which done says so, by all blocks of them. A
// worker without decisions costs nothing. done is called without a lock; it must not keep the path. The index must be one
// that Settles.
func (x *Index) Settle(w fleet.Worker, ends []kvcache.BlockHash, done func(path []kvcache.BlockHash) bool) {
	v, ok := x.workers.Load(w)
	if !ok || v.(*worker).decisions.Load() == 0 {
		return
	}
	of := v.(*worker)
	for _, d := range x.ending(of, ends) {
		if done(d.path) {
			x.settle(of, d)
		}
	}
}

// ending returns the decisions of a worker that end with one of the blocks.
func (x *Index) ending(w *worker, ends []kvcache.BlockHash) (list []decision) {
	x.trie.Lock()
	defer x.trie.Unlock()
	var found [8]uint32
	for _, hash := range ends {
		for _, id := range w.ends.all(found[:0], x.endKey(hash)) {
			if p := x.pins.at(id); x.last(id) == hash {
				list = append(list, decision{id, p.end, p.at, x.blocksOf(p.end)})
			}
		}
	}
	return list
}

// settle lets go of a decision, unless that has happened, or it was recorded again.
func (x *Index) settle(w *worker, d decision) {
	x.trie.Lock()
	defer x.trie.Unlock()
	if slices.Contains(w.ends.all(nil, x.endKey(d.path[len(d.path)-1])), d.pin) {
		if p := x.pins.at(d.pin); p.end == d.end && p.at == d.at {
			x.drop(d.pin)
			x.verify()
		}
	}
}

// last is the hash of a pin's last block.
func (x *Index) last(id uint32) kvcache.BlockHash {
	node, pos := x.pins.at(id).end.Node()
	return x.trie.Blocks(node)[pos]
}

// endKey is the key of a block among the ends; users choose the hashes.
func (x *Index) endKey(hash kvcache.BlockHash) uint32 { return uint32(uint64(hash) * x.secret >> 32) }

// blocksOf are all blocks up to one.
func (x *Index) blocksOf(end runtrie.Ref) []kvcache.BlockHash {
	node, pos := end.Node()
	var runs [][]kvcache.BlockHash
	for n := pos + 1; node != 0; node, n = x.trie.Above(node) {
		runs = append(runs, x.trie.Blocks(node)[:n])
	}
	slices.Reverse(runs)
	return slices.Concat(runs...)
}
