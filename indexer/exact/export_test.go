package exact

// NewSmall makes an index that has room for so many nodes, the root included.
func NewSmall(blockSize int, nodes uint32) *Index { return newIndex(blockSize, nodes) }

// Nodes is how many nodes an index has, the root and those that are gone apart.
func (x *Index) Nodes() int {
	x.trie.Lock()
	defer x.trie.Unlock()
	x.trie.Reclaim()
	return x.trie.Nodes()
}
