package kvcache

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"
)

// baseSeed is the seed of a block without adapter and salt, and of every sequence hash.
const baseSeed = 1337

// BlockHash is the local hash of one full block of tokens. It does not depend on the blocks before it.
type BlockHash uint64

// SequenceHash names a prefix: it chains the local hashes from block 0 up to a block.
type SequenceHash uint64

// Seed returns the hash seed of a routing scope. An empty adapter or salt counts as absent.
func Seed(adapter, salt string) uint64 {
	return AdapterSeed(adapter) + SaltSeed(salt)
}

// AdapterSeed returns the part of a seed that an adapter decides, base seed included.
func AdapterSeed(adapter string) uint64 {
	if adapter == "" {
		return baseSeed
	}
	return baseSeed + xxh3.HashString(adapter)
}

// SaltSeed returns what a cache salt adds to a seed; 0 for no salt. Additions wrap around.
func SaltSeed(salt string) uint64 {
	if salt == "" {
		return 0
	}
	return xxh3.HashStringSeed(salt, 1)
}

// BlockHashes appends the hash of every full block of tokens to dst[:0] and returns it. The tokens after the last
// full block are ignored. It fails when blockSize is not positive; dst is then returned unchanged in length 0.
func BlockHashes(dst []BlockHash, tokens []uint32, blockSize int, seed uint64) ([]BlockHash, error) {
	if blockSize <= 0 {
		return dst[:0], fmt.Errorf("hash blocks: block size %d: must be at least 1", blockSize)
	}
	return windowHashes(dst[:0], tokens, blockSize, blockSize, seed), nil
}

// BigramBlockHashes is BlockHashes for engines whose blocks hold pairs of neighbouring tokens (EAGLE): each block
// covers blockSize+1 tokens and the next begins blockSize tokens later.
func BigramBlockHashes(dst []BlockHash, tokens []uint32, blockSize int, seed uint64) ([]BlockHash, error) {
	if blockSize <= 0 {
		return dst[:0], fmt.Errorf("hash bigram blocks: block size %d: must be at least 1", blockSize)
	}
	return windowHashes(dst[:0], tokens, blockSize+1, blockSize, seed), nil
}

// SequenceHashes appends the sequence hash of every prefix of blocks to dst[:0] and returns it.
func SequenceHashes(dst []SequenceHash, blocks []BlockHash) []SequenceHash {
	dst = dst[:0]
	var pair [16]byte
	for i, b := range blocks {
		if i == 0 {
			dst = append(dst, SequenceHash(b))
			continue
		}
		binary.LittleEndian.PutUint64(pair[:8], uint64(dst[i-1]))
		binary.LittleEndian.PutUint64(pair[8:], uint64(b))
		dst = append(dst, SequenceHash(xxh3.HashSeed(pair[:], baseSeed)))
	}
	return dst
}

func windowHashes(dst []BlockHash, tokens []uint32, window, stride int, seed uint64) []BlockHash {
	if window >= leastWindow && window <= mostWindow {
		h := newWindowHash(window, seed)
		for ; len(tokens) >= window; tokens = tokens[stride:] {
			dst = append(dst, h.of(tokens))
		}
		return dst
	}
	var small [1024]byte
	buf := small[:]
	if len(buf) < 4*window {
		buf = make([]byte, 4*window)
	}
	buf = buf[:4*window]
	for len(tokens) >= window {
		putTokens(buf, tokens[:window])
		dst = append(dst, BlockHash(xxh3.HashSeed(buf, seed)))
		tokens = tokens[stride:]
	}
	return dst
}

// putTokens writes tokens as little-endian 32-bit words. It writes 8 bytes at a time, as the hash reads them: a read
// that spans two writes that are still under way waits for both.
func putTokens(buf []byte, tokens []uint32) {
	for len(tokens) >= 4 && len(buf) >= 16 {
		binary.LittleEndian.PutUint64(buf[:8], uint64(tokens[0])|uint64(tokens[1])<<32)
		binary.LittleEndian.PutUint64(buf[8:16], uint64(tokens[2])|uint64(tokens[3])<<32)
		tokens, buf = tokens[4:], buf[16:]
	}
	for i, t := range tokens {
		binary.LittleEndian.PutUint32(buf[4*i:], t)
	}
}
