package kvcache_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/kvcache"
)

func textBlocks(t *testing.T, blockSize int, adapter, salt string, parts ...[]byte) []kvcache.BlockHash {
	t.Helper()
	h, err := kvcache.NewTextHasher(blockSize, adapter, salt)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range parts {
		h.Write(p)
		n += len(p)
	}
	if want := n / (4 * blockSize); len(h.Blocks()) != want || h.Tokens() != n/4 {
		t.Errorf("%d bytes: %d blocks and %d tokens, want %d and %d", n, len(h.Blocks()), h.Tokens(), want, n/4)
	}
	return h.Blocks()
}

func someText(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, n)
	for i := range text {
		text[i] = byte(rng.Uint32())
	}
	return text
}

func TestHowATextIsCutDoesNotCount(t *testing.T) {
	text := someText(1003)
	for _, size := range []int{1, 3, 16, 200, 1000} {
		want := textBlocks(t, size, "a", "s", text)
		for seed := range uint64(50) {
			rng := rand.New(rand.NewPCG(seed, 0))
			var parts [][]byte
			for rest := text; len(rest) > 0; {
				n := min(len(rest), rng.IntN(1+rng.IntN(300)))
				parts, rest = append(parts, slices.Clone(rest[:n])), rest[n:]
			}
			if d := cmp.Diff(want, textBlocks(t, size, "a", "s", parts...)); d != "" {
				t.Fatalf("block size %d, seed %d: %s", size, seed, d)
			}
		}
	}
}

func TestATextKeepsTheFullBlocksOfItsBeginning(t *testing.T) {
	text := someText(1000)
	all := textBlocks(t, 16, "", "", text)
	for n := range text {
		begun := textBlocks(t, 16, "", "", text[:n])
		if d := cmp.Diff(all[:n/64], begun, cmp.Transformer("hashes", func(b []kvcache.BlockHash) []string { return hexes(b) })); d != "" {
			t.Fatalf("%d bytes: %s", n, d)
		}
	}
	changed := slices.Clone(text)
	changed[5*64] ^= 1
	got := textBlocks(t, 16, "", "", changed)
	for i := range all {
		if same := got[i] == all[i]; same != (i != 5) {
			t.Errorf("block %d is the same: %t", i, same)
		}
	}
}

func TestBlocksOfTextHaveTheirScopeAndAreNoBlocksOfTokens(t *testing.T) {
	text := someText(640)
	tokens := make([]uint32, len(text)/4)
	for i := range tokens {
		tokens[i] = binary.LittleEndian.Uint32(text[4*i:])
	}
	seen := map[kvcache.BlockHash]string{}
	note := func(what string, blocks []kvcache.BlockHash) {
		for _, b := range blocks {
			if before, ok := seen[b]; ok {
				t.Errorf("a block of %s is one of %s", what, before)
			}
			seen[b] = what
		}
	}
	for _, scope := range [][2]string{{"", ""}, {"a", ""}, {"", "s"}, {"a", "s"}, {"s", "a"}} {
		note("text "+scope[0]+"/"+scope[1], textBlocks(t, 16, scope[0], scope[1], text))
		blocks, err := kvcache.BlockHashes(nil, tokens, 16, kvcache.Seed(scope[0], scope[1]))
		if err != nil {
			t.Fatal(err)
		}
		note("tokens "+scope[0]+"/"+scope[1], blocks)
	}
}

func TestBlocksOfTextNeedASize(t *testing.T) {
	for _, size := range []int{0, -1} {
		if _, err := kvcache.NewTextHasher(size, "", ""); err == nil {
			t.Errorf("block size %d gave no error", size)
		}
	}
}
