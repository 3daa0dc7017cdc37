//go:build oracle

package oracle_test

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// rankKey names a rank of a worker.
type rankKey struct {
	worker uint64
	rank   int
}

// tiers from the fastest, of an engine's own; allTiers has also what it reaches
// elsewhere.
var (
	tiers    = allTiers[:3]
	allTiers = []string{"GPU", "CPU", "DISK", "EXTERNAL"}
)

// index is a plain model of what every rank holds: for each tier the set of
// prefixes, each named by the hash of all its tokens. It shares no code with the
// product.
type index map[rankKey]map[string]map[uint64]bool

// prefixes names each whole block of a prompt together with all before it.
func prefixes(tokens []uint32, block int, lora string) []uint64 {
	var names []uint64
	hash := xxh3.New()
	_, _ = hash.WriteString("prefix of " + lora + "\x00")
	for i := 0; i+block <= len(tokens); i += block {
		for _, t := range tokens[i : i+block] {
			_, _ = hash.Write(binary.LittleEndian.AppendUint32(nil, t))
		}
		names = append(names, hash.Sum64())
	}
	return names
}

// blockHashes are the two hashes of each whole block that a caller may send in
// place of tokens: of the block alone, and of it with all before it.
func blockHashes(tokens []uint32, block int) (local, sequence []int64) {
	const seed = 1337
	var last uint64
	for i := 0; i+block <= len(tokens); i += block {
		var b []byte
		for _, t := range tokens[i : i+block] {
			b = binary.LittleEndian.AppendUint32(b, t)
		}
		l := xxh3.HashSeed(b, seed)
		s := l
		if i > 0 {
			pair := binary.LittleEndian.AppendUint64(nil, last)
			s = xxh3.HashSeed(binary.LittleEndian.AppendUint64(pair, l), seed)
		}
		local, sequence, last = append(local, int64(l)), append(sequence, int64(s)), s
	}
	return local, sequence
}

func (x index) at(k rankKey, tier string) map[uint64]bool {
	if x[k] == nil {
		x[k] = map[string]map[uint64]bool{}
		for _, t := range allTiers {
			x[k][t] = map[uint64]bool{}
		}
	}
	return x[k][tier]
}

// depth is how many blocks from the start the rank holds, each on one of the
// first n tiers.
func (x index) depth(k rankKey, names []uint64, n int) int {
	for i, name := range names {
		found := false
		for _, t := range allTiers[:n] {
			found = found || x.at(k, t)[name]
		}
		if !found {
			return i
		}
	}
	return len(names)
}
