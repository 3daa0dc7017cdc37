package approx

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
