package load_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/kvcache"
)

func TestCheckFraction(t *testing.T) {
	for _, f := range []float64{0, math.SmallestNonzeroFloat64, 0.5, 1} {
		wantField(t, load.CheckFraction("decay_fraction", f), "")
	}
	for _, f := range []float64{-1, 1.5, math.Nextafter(1, 2), math.NaN(), math.Inf(1), math.Inf(-1)} {
		wantField(t, load.CheckFraction("decay_fraction", f), "decay_fraction")
	}
}

func TestR6_AFractionThatIsNoneChangesNothing(t *testing.T) {
	var tr load.Tracker
	s := tr.Add()
	b := book(&tr, s, "AB", 0)
	for _, f := range []float64{1.5, math.NaN(), -1} {
		if tr.Decay(b, f) {
			t.Errorf("fraction %v was taken", f)
		}
	}
	if got := loadOf(&tr, s).DecodeBlocks; got != 2 {
		t.Errorf("got %v blocks; want 2", got)
	}
}

// TestDecayWeighsOutputAndExclusiveSuffix has two bookings that share AB.
func TestDecayWeighsOutputAndExclusiveSuffix(t *testing.T) {
	var tr load.Tracker
	s := tr.Add()
	a, b := book(&tr, s, "ABCD", 0), book(&tr, s, "ABX", 0)
	held := func(letters string) float64 {
		out := make([]float64, tr.Len())
		tr.Active(chain(letters), out)
		return out[s]
	}
	steps := []struct {
		name string
		do   func()
		want float64
	}{
		{"AB, CD, X", func() {}, 5},
		{"output counts whole", func() { tr.AddBlocks(a, 3) }, 8},
		{"CD and the output at 0.3", func() { tr.Decay(a, 0.3) }, 4.5},
		{"a further block counts whole", func() { tr.AddBlocks(a, 1) }, 5.5},
		{"until the next", func() { tr.Decay(a, 0.1) }, 3.6},
		{"0 is a weight", func() { tr.Decay(a, 0) }, 3},
		{"the other has X", func() { tr.Decay(b, 0.5) }, 2.5},
		{"C is shared: whole", func() { book(&tr, s, "ABC", 0) }, 3.5},
		{"D and the output only", func() { tr.Decay(a, 1) }, 8.5},
		{"AB keeps its weight", func() { tr.Release(b, start) }, 8},
		{"nor does it weigh less", func() { tr.Decay(a, 0.25) }, 4.25},
		{"three shared blocks are left", func() { tr.Release(a, start) }, 3},
	}
	for _, step := range steps {
		step.do()
		if got := loadOf(&tr, s).DecodeBlocks; got != step.want {
			t.Errorf("%s: got %v blocks; want %v", step.name, got, step.want)
		}
	}
	if got := held("ABCD"); got != 3 {
		t.Errorf("held %v; want 3", got)
	}
}

// TestActiveIsWhatABookingDoesNotAdd books over decayed blocks.
func TestActiveIsWhatABookingDoesNotAdd(t *testing.T) {
	var tr load.Tracker
	s := tr.Add()
	tr.Decay(book(&tr, s, "ABCD", 0), 0.25)
	out := make([]float64, tr.Len())
	tr.Active(chain("ABX"), out)
	before := loadOf(&tr, s).DecodeBlocks
	book(&tr, s, "ABX", 0)
	if diff := cmp.Diff([]float64{1, 0.5, 3.5}, []float64{before, out[s], loadOf(&tr, s).DecodeBlocks}); diff != "" {
		t.Errorf("before, held, after (-want +got):\n%s", diff)
	}
}

func TestOwnBlocksOfThePromptDecayToo(t *testing.T) {
	var tr load.Tracker
	s := tr.Add()
	var b load.Booking
	tr.Book(&b, s, load.Demand{Blocks: chain("A"), OwnBlocks: 3}, nil, start)
	tr.Decay(&b, 0.5)
	if got := loadOf(&tr, s).DecodeBlocks; got != 2 {
		t.Errorf("got %v blocks; want 2", got)
	}
}

func TestBlocksOfOneBookingAreBounded(t *testing.T) {
	var tr load.Tracker
	s := tr.Add()
	var b load.Booking
	tr.Book(&b, s, load.Demand{OwnBlocks: math.MaxInt64}, nil, start)
	if tr.AddBlocks(&b, 1) || tr.AddBlocks(&b, math.MaxInt64) || loadOf(&tr, s).DecodeBlocks != 1<<32 {
		t.Errorf("got %v blocks; want 2^32", loadOf(&tr, s).DecodeBlocks)
	}
	tr.Release(&b, start)
	if diff := cmp.Diff(load.Load{}, loadOf(&tr, s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestL4_ABlockInPartIsBookedAsOne(t *testing.T) {
	blocks := func(n int) []kvcache.SequenceHash {
		hashes := make([]kvcache.BlockHash, n)
		for i := range hashes {
			hashes[i] = kvcache.BlockHash(i)
		}
		return kvcache.SequenceHashes(nil, hashes)
	}
	for _, c := range []struct {
		tokens, cached int64
		size, known    int
		prefill        int64
		held           float64
	}{
		{10_000, 0, 1056, 9, 10_000, 10},
		{10_000, 2112, 1056, 9, 7888, 10},
		{10_000, 0, 1056, 0, 10_000, 10}, // known by its length only
		{10_560, 0, 1056, 10, 10_560, 10},
		{10_000, 0, 16, 625, 10_000, 625},
		{5, 9, 16, 0, 0, 1},
		{0, 0, 16, 0, 0, 0},
		{10, 0, 16, 2, 10, 2}, // more hashes than tokens
	} {
		var tr load.Tracker
		s := tr.Add()
		var b load.Booking
		tr.Book(&b, s, load.PromptDemand(c.tokens, c.cached, c.size, blocks(c.known)), nil, start)
		want := load.Load{PrefillTokens: c.prefill, DecodeBlocks: c.held, ActiveRequests: 1}
		if diff := cmp.Diff(want, loadOf(&tr, s)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c, diff)
		}
		limit := load.Overload{KVFraction: 0.5}
		if l := loadOf(&tr, s); c.size == 1056 && limit.Projected(l, 0, 100) {
			t.Errorf("%v blocks of 100 are an overload", l.DecodeBlocks)
		}
	}
}
