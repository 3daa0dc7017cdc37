package load_test

import (
	"testing"
	"time"

	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/kvcache"
)

// BenchmarkBook books and releases a prompt of 512 blocks of which the first
// half is shared with 100 others.
func BenchmarkBook(b *testing.B) {
	var tr load.Tracker
	s := tr.Add()
	blocks := make([]kvcache.BlockHash, 512)
	hashes := func(tail kvcache.BlockHash) []kvcache.SequenceHash {
		for i := range blocks {
			blocks[i] = kvcache.BlockHash(i)
			if i >= 256 {
				blocks[i] = tail
			}
		}
		return kvcache.SequenceHashes(nil, blocks)
	}
	for i := range 100 {
		tr.Book(&load.Booking{}, s, load.Demand{Blocks: hashes(kvcache.BlockHash(1000 + i))}, nil, start)
	}
	mine := hashes(5000)
	b.ReportAllocs()
	for b.Loop() {
		var bk load.Booking
		tr.Book(&bk, s, load.Demand{Blocks: mine}, nil, start)
		tr.Release(&bk, start)
	}
}

// BenchmarkLoad looks at a rank with 64 active prefills of which the older half
// should be over.
func BenchmarkLoad(b *testing.B) {
	for _, e := range []load.Estimator{{Kind: load.EstimateNone}, {Kind: load.EstimateRate, TokensPerSecond: 1000}} {
		b.Run(string(e.Kind), func(b *testing.B) {
			tr := load.NewTracker(e)
			s := tr.Add()
			for range 64 {
				tr.Book(&load.Booking{}, s, load.Demand{PrefillTokens: 1000}, nil, start)
			}
			now := start.Add(32500 * time.Millisecond)
			b.ReportAllocs()
			for b.Loop() {
				tr.Load(s, now)
			}
		})
	}
}

// TestOnlyNewBlocksAllocate runs a booking whose blocks others hold.
func TestOnlyNewBlocksAllocate(t *testing.T) {
	tr := load.NewTracker(load.Estimator{Kind: load.EstimateLearned})
	s := tr.Add()
	book(tr, s, "ABCD", 100)
	blocks, active := chain("ABCD"), make([]float64, tr.Len())
	var b load.Booking
	if got := testing.AllocsPerRun(100, func() {
		tr.Active(blocks, active)
		tr.Book(&b, s, load.PromptDemand(70, 6, 16, blocks), nil, start)
		tr.Load(s, start)
		tr.PrefillComplete(&b, start.Add(time.Second))
		tr.AddBlocks(&b, 1)
		tr.Decay(&b, 0.5)
		tr.Release(&b, start.Add(2*time.Second))
	}); got != 0 {
		t.Errorf("%v allocations; want none", got)
	}
}
