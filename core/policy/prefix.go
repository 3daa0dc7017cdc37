package policy

import (
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/plugins/abi"
)

// How deep into a prompt a policy may look for what names its beginning: the
// request field prefix_hash looks as deep as the default.
const (
	DefaultPrefixTokens = 256
	MaxPrefixTokens     = 4096
)

// maxPrefixBlocks bounds what a table keeps of a prompt's hashes, whatever the
// block size.
const maxPrefixBlocks = 256

// SetPrefix gives the table the hashes of the prompt's beginnings: hashes[i] names
// its first i+1 blocks. Of a prompt whose tokens are not known, or that fills no
// block, there are none. It sets the request field prefix_hash. The table keeps the
// slice until its next Reset.
func (t *Table) SetPrefix(blockSize int, hashes []kvcache.SequenceHash) {
	t.blockSize, t.prefix = max(blockSize, 1), hashes[:min(len(hashes), maxPrefixBlocks)]
	t.fields[abi.FieldPrefixHash] = t.PrefixHash(DefaultPrefixTokens)
}

// PrefixHash is the id of the prompt's first tokens, in full blocks, of which it
// takes at least one and as many as there are: so that prompts of equal beginnings
// have equal ids. 0 when no block is known.
func (t *Table) PrefixHash(tokens int) float64 {
	if len(t.prefix) == 0 {
		return 0
	}
	blocks := min(max(tokens/t.blockSize, 1), len(t.prefix))
	return float64(uint64(t.prefix[blocks-1]) >> 11)
}
