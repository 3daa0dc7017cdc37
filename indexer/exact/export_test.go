package exact

import "github.com/routerd/routerd/kvcache"

// NewSmall makes an index that has room for so many nodes, the root included.
func NewSmall(blockSize int, nodes uint32) *Index { return newIndex(blockSize, nodes) }

// Nodes is how many nodes an index has, the root and those that are gone apart.
func (x *Index) Nodes() int {
	x.trie.Lock()
	defer x.trie.Unlock()
	x.trie.Reclaim()
	return x.trie.Nodes()
}

// FillTable fills half of a table of so many entries, and makes it twice as large.
func FillTable(entries int) {
	var t table
	t.resize(entries)
	for i := range entries / 2 {
		e := kvcache.NumberHash(uint64(i))
		_, place := t.get(e)
		t.put(e, place, 1)
	}
	t.resize(2 * entries)
}
