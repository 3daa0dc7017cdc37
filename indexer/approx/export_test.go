package approx

import "github.com/routerd/routerd/kvcache"

// NewSmall makes an index that has room for so many nodes, the root included.
func NewSmall(cfg Config, nodes uint32) (*Index, error) { return newIndex(cfg, nodes) }

// Armed tells whether the timer is set.
func (x *Index) Armed() bool {
	x.trie.Lock()
	defer x.trie.Unlock()
	return x.armed
}

// Nodes is how many nodes an index has, the root and those that are gone apart.
func (x *Index) Nodes() int {
	x.trie.Lock()
	defer x.trie.Unlock()
	x.trie.Reclaim()
	return x.trie.Nodes()
}

// Twin is another hash with the same key among the ends.
func (x *Index) Twin(hash kvcache.BlockHash) kvcache.BlockHash {
	inverse := x.secret
	for range 6 {
		inverse *= 2 - x.secret*inverse
	}
	twin := hash + kvcache.BlockHash(inverse)
	if x.endKey(twin) != x.endKey(hash) {
		return hash - kvcache.BlockHash(inverse)
	}
	return twin
}
