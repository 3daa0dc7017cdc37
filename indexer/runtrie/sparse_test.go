package runtrie_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/routerd/routerd/indexer/runtrie"
)

func TestSparseEqualsAMap(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		var s runtrie.Sparse[uint32, uint32]
		want := map[uint32]uint32{}
		for i := range 20_000 {
			k, v := 1+rnd.Uint32N(2000), 1+rnd.Uint32N(9)
			if fill := rnd.IntN(20_000) > i; fill {
				s.Put(k, v)
				want[k] = v
			} else {
				s.Delete(k)
				delete(want, k)
			}
			if k = 1 + rnd.Uint32N(2000); s.Get(k) != want[k] || s.Len() != len(want) {
				t.Fatalf("seed %d, step %d: key %d has %d, want %d; %d entries, want %d", seed, i, k, s.Get(k), want[k], s.Len(), len(want))
			}
		}
		if got := maps.Collect(s.All()); !maps.Equal(got, want) {
			t.Errorf("seed %d: got %d entries, want %d", seed, len(got), len(want))
		}
		for k := range want {
			s.Delete(k)
		}
		if s.Bytes() != 0 || s.Len() != 0 {
			t.Errorf("seed %d: %d entries in %d bytes are left", seed, s.Len(), s.Bytes())
		}
	}
}

// What is told of an allocation is what the allocator takes for it.
func TestHeapBytesAreThoseOfTheAllocator(t *testing.T) {
	for n := 1; n < 200<<10; n += 1 + n/7 {
		want := int64(cap(append([]byte(nil), make([]byte, n)...)))
		if got := runtrie.HeapBytes(n); got < want*87/100 || got > want*113/100 {
			t.Errorf("%d bytes: got %d, want %d", n, got, want)
		}
	}
}
