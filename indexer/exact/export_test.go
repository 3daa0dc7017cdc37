package exact

import (
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// NewSmall makes an index that has room for so many nodes, the root included.
func NewSmall(blockSize int, nodes uint32) *Index { return newIndex(blockSize, nodes) }

// Nodes is how many nodes an index has, the root and those that are gone apart.
func (x *Index) Nodes() int {
	x.trie.Lock()
	defer x.trie.Unlock()
	x.trie.Reclaim()
	return x.trie.Nodes()
}

// Table maps numbers to blocks.
type Table struct{ of table }

// NewTable returns one that is empty, whose homes follow from a secret.
func NewTable(secret uint64) *Table {
	t := &Table{}
	t.of.mixBy(secret | 1)
	return t
}

// Len is how many numbers there are.
func (t *Table) Len() int { return t.of.size() }

// Get returns a number's block, 0 for none, and where a search for it may begin.
func (t *Table) Get(n uint64) (at uint32, place int) {
	got, place := t.of.get(kvcache.NumberHash(n))
	return uint32(got), place
}

// Room makes room for numbers.
func (t *Table) Room(all []uint64) {
	hashes := make([]kvcache.EngineHash, len(all))
	for i, n := range all {
		hashes[i] = kvcache.NumberHash(n)
	}
	t.of.room(hashes...)
}

// Put gives a number a block, in a search that begins at a place.
func (t *Table) Put(n uint64, place int, at uint32) {
	t.of.put(kvcache.NumberHash(n), place, runtrie.Ref(at))
}

// Take removes a number.
func (t *Table) Take(n uint64) uint32 { return uint32(t.of.take(kvcache.NumberHash(n))) }

// Shrink gives memory back.
func (t *Table) Shrink() { t.of.shrink() }

// Resize gives it a size.
func (t *Table) Resize(size int) { t.of.resize(size) }

// Purge removes the numbers of some blocks.
func (t *Table) Purge(goes func(at uint32) bool) {
	f := func(at runtrie.Ref) bool { return goes(uint32(at)) }
	t.of.purge(t.of.goners(f), f)
}

// Texts maps byte strings to blocks.
type Texts struct{ of texts }

// Len is how many there are.
func (t *Texts) Len() int { return t.of.n }

// Get returns a byte string's block.
func (t *Texts) Get(s string) uint32 { return uint32(t.of.get(s)) }

// Put gives a byte string a block.
func (t *Texts) Put(s string, at uint32) { t.of.put(s, runtrie.Ref(at)) }

// Take removes a byte string that is there.
func (t *Texts) Take(s string) { t.of.take(s) }

// All returns all of them.
func (t *Texts) All() map[string]uint32 {
	all := map[string]uint32{}
	t.of.each(func(s []byte, at runtrie.Ref) { all[string(s)] = uint32(at) })
	return all
}

// Evicting is an index without a cap that evicts when it is told to.
type Evicting struct{ *Index }

// NewEvicting returns one that is empty.
func NewEvicting(blockSize int) Evicting { return Evicting{New(blockSize)} }

// Evict does a round of evictions that shall free so many bytes, and tells each hash.
func (x Evicting) Evict(bytes int64, gone func(fleet.Worker, kvcache.Tier, kvcache.EngineHash)) {
	e := &x.evict
	e.mu.Lock()
	defer e.mu.Unlock()
	e.most, e.observe = bytes*roundShare, gone
	for x.evictStep() {
	}
	e.most, e.observe = 0, nil
	x.trie.Lock()
	defer x.trie.Unlock()
	for range 8 { // what is used from now on is younger
		x.trie.Tick()
	}
}

// Observe has each hash told that is evicted.
func (x *Index) Observe(gone func(fleet.Worker, kvcache.Tier, kvcache.EngineHash)) {
	x.evict.observe = gone
}
