package kvcache_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/kvcache"
)

func ramp(from, to uint32) []uint32 {
	var ids []uint32
	for t := from; t <= to; t++ {
		ids = append(ids, t)
	}
	return ids
}

func hexes[T ~uint64](hs []T) []string {
	out := []string{}
	for _, h := range hs {
		out = append(out, fmt.Sprintf("%016x", uint64(h)))
	}
	return out
}

func TestBlockHashesEqualPublishedVectors(t *testing.T) {
	type hasher func([]kvcache.BlockHash, []uint32, int, uint64) ([]kvcache.BlockHash, error)
	cases := []struct {
		name          string
		hash          hasher
		tokens        []uint32
		size          int
		adapter, salt string
		want          []string
	}{
		{"plain", kvcache.BlockHashes, ramp(0, 15), 4, "", "", []string{"7ee2cbedc694ab46", "a8416cfd935bdb13", "0f1aa342314b9384", "de642b4b4e66ec34"}},
		{"partial tail dropped", kvcache.BlockHashes, ramp(0, 6), 4, "", "", []string{"7ee2cbedc694ab46"}},
		{"shifted", kvcache.BlockHashes, ramp(1, 8), 4, "", "", []string{"cb38e4d7fb2dca5c", "e8d3ec39b907b74c"}},
		{"adapter", kvcache.BlockHashes, ramp(0, 7), 4, "a", "", []string{"4b43e682c8d3c048", "766444364803d07a"}},
		{"salt", kvcache.BlockHashes, ramp(0, 7), 4, "", "s", []string{"07b520b93a18c2b3", "b225d7ec95a648f5"}},
		{"adapter and salt", kvcache.BlockHashes, ramp(0, 7), 4, "a", "s", []string{"d30f9099bbf56e9c", "cce7bd8fbf52d9ce"}},
		{"bigram", kvcache.BigramBlockHashes, ramp(0, 8), 4, "", "", []string{"ca175d8e881f6888", "dce229f8bbc7aec0"}},
		{"block size 16", kvcache.BlockHashes, ramp(0, 15), 16, "", "", []string{"d47a8f41c833328a"}},
		{"no tokens", kvcache.BlockHashes, nil, 4, "", "", []string{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.hash(nil, c.tokens, c.size, kvcache.Seed(c.adapter, c.salt))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, hexes(got)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSequenceHashesChainLocalHashes(t *testing.T) {
	blocks, err := kvcache.BlockHashes(nil, ramp(0, 15), 4, kvcache.Seed("", ""))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"7ee2cbedc694ab46", "83fb702f20e2ad65", "ebe58e326790467b", "e9036fce74242bb5"}
	if d := cmp.Diff(want, hexes(kvcache.SequenceHashes(nil, blocks))); d != "" {
		t.Error(d)
	}
	first, err := kvcache.BlockHashes(nil, ramp(1, 4), 4, kvcache.Seed("", ""))
	if err != nil {
		t.Fatal(err)
	}
	if got := int64(kvcache.SequenceHashes(nil, first)[0]); got != -3803038269031200164 {
		t.Errorf("first sequence hash as signed number = %d", got)
	}
}

func TestBlockHashesEqualRecordedVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/hash_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Tokens    []uint32                   `json:"tokens_48"`
		BlockSize int                        `json:"block_size"`
		Dynamo    map[string]json.RawMessage `json:"dynamo"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	want := func(key string) []string {
		var out []string
		if err := json.Unmarshal(v.Dynamo[key], &out); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		return out
	}
	check := func(key string, tokens []uint32, seed uint64) []kvcache.BlockHash {
		t.Helper()
		got, err := kvcache.BlockHashes(nil, tokens, v.BlockSize, seed)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want(key), decimals(got)); d != "" {
			t.Errorf("%s: %s", key, d)
		}
		return got
	}
	plain := check("plain", v.Tokens, kvcache.Seed("", ""))
	check("partial_20_tokens", v.Tokens[:20], kvcache.Seed("", ""))
	check("lora_sql-adapter", v.Tokens, kvcache.Seed("sql-adapter", ""))
	check("cache_namespace_tenant-a", v.Tokens, kvcache.Seed("", "tenant-a"))
	if d := cmp.Diff(want("sequence_hash_chain_by_formula"), decimals(kvcache.SequenceHashes(nil, plain))); d != "" {
		t.Error(d)
	}
	pairs, err := kvcache.BigramBlockHashes(nil, v.Tokens, v.BlockSize, kvcache.Seed("", ""))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want("eagle"), decimals(pairs)); d != "" {
		t.Error(d)
	}
}

func decimals[T ~uint64](hs []T) []string {
	out := []string{}
	for _, h := range hs {
		out = append(out, strconv.FormatUint(uint64(h), 10))
	}
	return out
}

func TestBlockSizeMustBePositive(t *testing.T) {
	for _, size := range []int{0, -1} {
		if _, err := kvcache.BlockHashes(nil, ramp(0, 3), size, 0); err == nil {
			t.Errorf("BlockHashes with block size %d gave no error", size)
		}
		if _, err := kvcache.BigramBlockHashes(nil, ramp(0, 3), size, 0); err == nil {
			t.Errorf("BigramBlockHashes with block size %d gave no error", size)
		}
	}
}

func TestBlockHashesReuseTheirBuffer(t *testing.T) {
	tokens := ramp(0, 1023)
	dst := make([]kvcache.BlockHash, 0, 64)
	got := testing.AllocsPerRun(100, func() { dst, _ = kvcache.BlockHashes(dst, tokens, 16, 1337) })
	if got != 0 {
		t.Errorf("%v allocations a call, want 0", got)
	}
}

func BenchmarkBlockHashes(b *testing.B) {
	for _, blocks := range []int{64, 512} {
		b.Run(strconv.Itoa(blocks), func(b *testing.B) {
			tokens := ramp(0, uint32(16*blocks-1))
			var dst []kvcache.BlockHash
			b.ReportAllocs()
			for b.Loop() {
				dst, _ = kvcache.BlockHashes(dst, tokens, 16, 1337)
			}
		})
	}
}
