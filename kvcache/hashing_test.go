package kvcache_test

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/kvcache"
)

func TestHashingEqualsRecordedVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/item_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name, Adapter, Salt string
		Tokens              uint32
		Items               [][]string
		Bigram              bool
		Blocks              []string
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			var items [][]uint64
			for _, block := range c.Items {
				var numbers []uint64
				for _, text := range block {
					n, err := strconv.ParseUint(text, 10, 64)
					if err != nil {
						t.Fatal(err)
					}
					numbers = append(numbers, n)
				}
				items = append(items, numbers)
			}
			before := slices.Clone(items)
			h := kvcache.Hashing{Seed: kvcache.Seed(c.Adapter, c.Salt), Bigram: c.Bigram, Items: items}
			got, err := h.Blocks(nil, ramp(0, c.Tokens-1), 4)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.Blocks, decimals(got)); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(before, items); d != "" {
				t.Errorf("the caller's items changed: %s", d)
			}
		})
	}
	if len(cases) < 15 {
		t.Errorf("%d cases", len(cases))
	}
}

func TestHashingWithoutItemsIsTheOtherTwo(t *testing.T) {
	tokens := ramp(7, 107)
	for _, size := range []int{1, 3, 16, 200} {
		plain, err := kvcache.BlockHashes(nil, tokens, size, 99)
		if err != nil {
			t.Fatal(err)
		}
		pairs, err := kvcache.BigramBlockHashes(nil, tokens, size, 99)
		if err != nil {
			t.Fatal(err)
		}
		for bigram, want := range map[bool][]kvcache.BlockHash{false: plain, true: pairs} {
			got, err := kvcache.Hashing{Seed: 99, Bigram: bigram, Items: [][]uint64{nil, {}}}.Blocks(nil, tokens, size)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("block size %d, bigram %v: %s", size, bigram, d)
			}
		}
	}
	if _, err := (kvcache.Hashing{}).Blocks(nil, tokens, 0); err == nil {
		t.Error("block size 0 gave no error")
	}
}

func TestAnIdentifierOfAnItemIsADigestOrAnyText(t *testing.T) {
	digest := "fedcba98765432100123456789abcdef0123456789abcdef0123456789abcdef"
	for _, c := range []struct {
		name, identifier string
		want             uint64
		digest           bool
	}{
		{"digest", digest, 0xfedcba9876543210, true},
		{"digest in capitals", strings.ToUpper(digest), 0xfedcba9876543210, true},
		{"only its first 16 digits count", digest[:16] + strings.Repeat("0", 48), 0xfedcba9876543210, true},
		{"a digit short", digest[:63], xxh3.HashString(digest[:63]), false},
		{"a digit too many", digest + "0", xxh3.HashString(digest + "0"), false},
		{"no hexadecimal digit at its end", digest[:63] + "g", xxh3.HashString(digest[:63] + "g"), false},
		{"a sign", "+" + digest[1:], xxh3.HashString("+" + digest[1:]), false},
		{"a name", "image-1", xxh3.HashString("image-1"), false},
		{"nothing", "", xxh3.HashString(""), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := kvcache.ItemHash([]byte(c.identifier)); got != c.want || kvcache.IsDigest([]byte(c.identifier)) != c.digest {
				t.Errorf("%016x, digest %t; want %016x, %t", got, !c.digest, c.want, c.digest)
			}
		})
	}
}

func TestHashingReusesItsBuffer(t *testing.T) {
	tokens := ramp(0, 1023)
	dst := make([]kvcache.BlockHash, 0, 64)
	h := kvcache.Hashing{Seed: 1337}
	if got := testing.AllocsPerRun(100, func() { dst, _ = h.Blocks(dst, tokens, 16) }); got != 0 {
		t.Errorf("%v allocations a call, want 0", got)
	}
}
