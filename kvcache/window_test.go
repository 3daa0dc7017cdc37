package kvcache_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/kvcache"
)

// Every size of a block has the hash of the reference, whichever way it is worked out.
func TestBlockHashesEqualTheReferenceAtEverySize(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for size := 1; size <= 300; size++ {
		tokens, seed := make([]uint32, 3*size+1), rnd.Uint64()
		for i := range tokens {
			tokens[i] = rnd.Uint32()
		}
		for bigram, hash := range map[int]func([]kvcache.BlockHash, []uint32, int, uint64) ([]kvcache.BlockHash, error){0: kvcache.BlockHashes, 1: kvcache.BigramBlockHashes} {
			got, err := hash(nil, tokens, size, seed)
			if err != nil || len(got) < 3 {
				t.Fatalf("size %d: %d blocks, error %v", size, len(got), err)
			}
			for i := range 3 {
				var raw []byte
				for _, token := range tokens[i*size : (i+1)*size+bigram] {
					raw = binary.LittleEndian.AppendUint32(raw, token)
				}
				if want := xxh3.HashSeed(raw, seed); uint64(got[i]) != want {
					t.Errorf("size %d, window %d, block %d: %x, want %x", size, size+bigram, i, got[i], want)
				}
			}
		}
	}
}
