package exact_test

import (
	"math/rand/v2"
	"testing"

	"github.com/routerd/routerd/indexer/exact"
)

// A table does as a plain map does. Numbers come in batches whose places are looked up before the first of them is put.
func TestATableIsAMap(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		tab, model := exact.NewTable(r.Uint64()), map[uint64]uint32{}
		span := 1 + r.Uint64N(1+1<<r.Uint64N(12)) // of the numbers: few make them meet
		for range 300 {
			switch r.IntN(8) {
			case 0, 1, 2:
				batch := make([]uint64, 1+r.IntN(16))
				for i := range batch {
					batch[i] = r.Uint64N(span)
				}
				tab.Room(batch)
				places := make([]int, len(batch))
				for i, n := range batch {
					_, places[i] = tab.Get(n)
				}
				for i, n := range batch {
					at := 1 + r.Uint32N(1000)
					tab.Put(n, places[i], at)
					model[n] = at
				}
			case 3, 4, 5:
				for range 1 + r.IntN(16) {
					n := r.Uint64N(span)
					if got := tab.Take(n); got != model[n] {
						t.Fatalf("seed %d: %d taken for %d, want %d", seed, got, n, model[n])
					}
					delete(model, n)
				}
			case 6:
				if r.IntN(4) == 0 {
					bit := uint32(1) << r.IntN(4)
					goes := func(at uint32) bool { return at&bit != 0 }
					tab.Purge(goes)
					for n, at := range model {
						if goes(at) {
							delete(model, n)
						}
					}
				} else if len(model) > 0 {
					tab.Resize(len(model) + 1 + r.IntN(len(model)))
				}
			default:
				tab.Shrink()
			}
			if tab.Len() != len(model) {
				t.Fatalf("seed %d: %d numbers, want %d", seed, tab.Len(), len(model))
			}
		}
		for n := range span {
			if got, _ := tab.Get(n); got != model[n] {
				t.Fatalf("seed %d: %d means %d, want %d", seed, n, got, model[n])
			}
		}
	}
}
