//go:build !indexcheck

package exact_test

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

// textOf is a byte string of some length that is n's alone.
func textOf(n uint64, length int) string {
	b := make([]byte, length)
	binary.LittleEndian.PutUint64(b, n*0x9e3779b97f4a7c15)
	return string(b)
}

func TestTextsEqualAMap(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		var got exact.Texts
		want := map[string]uint32{}
		const steps = 20_000
		for i := range steps {
			s, at := textOf(rnd.Uint64N(3000), 8+4*rnd.IntN(3)), 1+rnd.Uint32()>>1
			_, has := want[s]
			switch {
			case rnd.IntN(steps) > i:
				got.Put(s, at)
				want[s] = at
			case has:
				got.Take(s)
				delete(want, s)
			}
			if s = textOf(rnd.Uint64N(3000), 8+4*rnd.IntN(3)); got.Get(s) != want[s] || got.Len() != len(want) {
				t.Fatalf("seed %d, step %d: %x means %d, want %d; %d strings, want %d", seed, i, s, got.Get(s), want[s], got.Len(), len(want))
			}
		}
		if !maps.Equal(got.All(), want) {
			t.Errorf("seed %d: not the same strings", seed)
		}
	}
}

// Engine hashes of 32 bytes stand densely, and what is removed is given back.
func TestTextsTakeLittleMemoryAndGiveItBack(t *testing.T) {
	const blocks, length = 200_000, 32
	before := liveHeap()
	var texts exact.Texts
	for n := range uint64(blocks) {
		texts.Put(textOf(n, length), uint32(n+1))
	}
	full := float64(liveHeap()-before) / blocks
	for n := range uint64(blocks) {
		if n%10 != 0 {
			texts.Take(textOf(n, length))
		}
	}
	left := float64(liveHeap()-before) / (blocks / 10)
	t.Logf("%.1f bytes a string of %d, %.1f after nine of ten went", full, length, left)
	if full > length+4+8/0.5 || left > length+4+8/0.38 {
		t.Errorf("%.1f bytes a string of %d, %.1f after nine of ten went", full, length, left)
	}
	if got := texts.Get(textOf(10, length)); got != 11 {
		t.Errorf("a string means %d", got)
	}
	runtime.KeepAlive(&texts)
}

// What cannot be indexed is forgotten with its memory when the engine removes it.
func TestUnmatchableHashesGiveTheirMemoryBack(t *testing.T) {
	const blocks = 50_000
	x := exact.New(size)
	apply(t, x, w1, none(), stored(ids(1, 1), numbers(1)))
	before := liveHeap()
	hidden := func(from uint64) kvcache.Event {
		e := child(stored(ids(5, 100), span(from, 100)), 1)
		e.Opaque = true
		return e
	}
	for from := uint64(10); from < blocks; from += 100 {
		apply(t, x, w1, map[string]uint64{"multimodal": 100}, hidden(from))
	}
	full := int64(liveHeap() - before)
	for from := uint64(10); from < blocks; from += 100 {
		apply(t, x, w1, none(), removed(span(from, 100)))
	}
	if left := int64(liveHeap()) - int64(before); full > 32*blocks || left > full/20 {
		t.Errorf("%d bytes for %d hashes, %d after they went", full, blocks, left)
	}
	runtime.KeepAlive(x)
}
