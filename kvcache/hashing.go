package kvcache

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/zeebo/xxh3"
)

// Hashing is how the tokens of a prompt become blocks. The zero value but for Seed is
// BlockHashes.
type Hashing struct {
	Seed uint64
	// Bigram is BigramBlockHashes.
	Bigram bool
	// Items are, by block, the hashes of the images and other items that touch it, in
	// any order; one that is there twice counts twice. Blocks beyond its end have none.
	Items [][]uint64
}

// Blocks is BlockHashes or BigramBlockHashes; the hash of a block that items touch
// covers theirs too, behind the tokens. Nothing of h is changed or kept.
func (h Hashing) Blocks(dst []BlockHash, tokens []uint32, blockSize int) ([]BlockHash, error) {
	if blockSize <= 0 {
		return dst[:0], fmt.Errorf("hash blocks: block size %d: must be at least 1", blockSize)
	}
	window := blockSize
	if h.Bigram {
		window++
	}
	dst = windowHashes(dst[:0], tokens, window, blockSize, h.Seed)
	var buf []byte
	for i, items := range h.Items[:min(len(h.Items), len(dst))] {
		if len(items) == 0 {
			continue
		}
		buf = slices.Grow(buf[:0], 4*window+8*len(items))[:4*window]
		putTokens(buf, tokens[i*blockSize:i*blockSize+window])
		if !slices.IsSorted(items) {
			items = slices.Sorted(slices.Values(items))
		}
		for _, item := range items {
			buf = binary.LittleEndian.AppendUint64(buf, item)
		}
		dst[i] = BlockHash(xxh3.HashSeed(buf, h.Seed))
	}
	return dst, nil
}

// digestLength is the length of an identifier that engines make of an image's bytes, in hexadecimal digits.
const digestLength = 64

// IsDigest tells whether an item's identifier has the form that engines make of its bytes.
func IsDigest(identifier []byte) bool {
	if len(identifier) != digestLength {
		return false
	}
	for _, c := range identifier {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}

// ItemHash is the hash that stands for an engine's identifier of an image or another item: the first 64 bits of a
// digest, XXH3-64 of any other text.
func ItemHash(identifier []byte) uint64 {
	if IsDigest(identifier) {
		if n, err := strconv.ParseUint(string(identifier[:16]), 16, 64); err == nil {
			return n
		}
	}
	return xxh3.Hash(identifier)
}
