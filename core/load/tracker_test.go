package load_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/kvcache"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

type owner struct{ withdrawn int }

func (o *owner) Withdraw() { o.withdrawn++ }

// chain makes the sequence hashes of a prompt given as one letter a block.
func chain(letters string) []kvcache.SequenceHash {
	blocks := make([]kvcache.BlockHash, len(letters))
	for i, c := range letters {
		blocks[i] = kvcache.BlockHash(c)
	}
	return kvcache.SequenceHashes(nil, blocks)
}

func book(t *load.Tracker, s load.Slot, letters string, prefill int64) *load.Booking {
	b := &load.Booking{}
	t.Book(b, s, load.Demand{PrefillTokens: prefill, Blocks: chain(letters)}, &owner{}, start)
	return b
}

func loadOf(t *load.Tracker, s load.Slot) load.Load {
	l, _ := t.Load(s, start)
	return l
}

func TestSharedPrefixesCountOnceARank(t *testing.T) {
	var tr load.Tracker
	s, other := tr.Add(), tr.Add()
	a := book(&tr, s, "ABCDEF", 96)
	b := book(&tr, s, "ABCXY", 80)
	c := book(&tr, s, "ABCDEF", 96)
	d := book(&tr, s, "AB", 32)
	e := book(&tr, other, "ABC", 48)
	steps := []struct {
		release *load.Booking
		want    load.Load
	}{
		{nil, load.Load{PrefillTokens: 304, DecodeBlocks: 8, ActiveRequests: 4}},
		{a, load.Load{PrefillTokens: 208, DecodeBlocks: 8, ActiveRequests: 3}},
		{c, load.Load{PrefillTokens: 112, DecodeBlocks: 5, ActiveRequests: 2}},
		{b, load.Load{PrefillTokens: 32, DecodeBlocks: 2, ActiveRequests: 1}},
		{d, load.Load{}},
	}
	for i, step := range steps {
		if step.release != nil && !tr.Release(step.release, start) {
			t.Fatalf("step %d: not released", i)
		}
		if diff := cmp.Diff(step.want, loadOf(&tr, s)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	if diff := cmp.Diff(load.Load{PrefillTokens: 48, DecodeBlocks: 3, ActiveRequests: 1}, loadOf(&tr, other)); diff != "" {
		t.Errorf("other rank (-want +got):\n%s", diff)
	}
	tr.Release(e, start)
	out := make([]float64, tr.Len())
	tr.Active(chain("ABCDEF"), out)
	if diff := cmp.Diff([]float64{0, 0}, out); diff != "" {
		t.Errorf("blocks are left (-want +got):\n%s", diff)
	}
}

func TestActiveIsTheHeldPrefix(t *testing.T) {
	var tr load.Tracker
	a, b := tr.Add(), tr.Add()
	book(&tr, a, "ABCD", 0)
	book(&tr, b, "ABXY", 0)
	for letters, want := range map[string][]float64{
		"ABCDEF": {4, 2}, "AB": {2, 2}, "A": {1, 1}, "ABXYZ": {2, 4}, "Q": {0, 0}, "": {0, 0},
	} {
		out := make([]float64, tr.Len())
		tr.Active(chain(letters), out)
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("%q (-want +got):\n%s", letters, diff)
		}
	}
}

func TestVersionRisesOnBookingsAndEligibilityOnly(t *testing.T) {
	var tr load.Tracker
	s := tr.Add()
	version := func() load.Version { return tr.Version(s) }
	v0 := version()
	b := book(&tr, s, "AB", 32)
	v1 := version()
	tr.PrefillComplete(b, start)
	tr.AddBlocks(b, 3)
	tr.Release(b, start)
	v2 := version()
	tr.Touch(s)
	v3 := version()
	tr.Remove(s, nil, start)
	if again := tr.Add(); again != s {
		t.Fatalf("got slot %d; want %d again", again, s)
	}
	v4 := version()
	if v1 == v0 || v2 != v1 || v3 == v2 || v4 == v3 || v4 == v0 {
		t.Errorf("got versions %v", []load.Version{v0, v1, v2, v3, v4})
	}
}

func TestEventsOfAnEndedBookingAreHarmless(t *testing.T) {
	var tr load.Tracker
	s := tr.Add()
	b := book(&tr, s, "ABC", 48)
	owners := tr.Remove(s, nil, start)
	if len(owners) != 1 || owners[0] != b.Owner() || b.Live() || tr.Live() != 0 {
		t.Fatalf("got %d owners, live %v", len(owners), b.Live())
	}
	tr.Add()
	want := load.Load{PrefillTokens: 16, DecodeBlocks: 1, ActiveRequests: 1}
	book(&tr, s, "A", 16)
	if tr.PrefillComplete(b, start) || tr.AddBlocks(b, 1) || tr.Release(b, start) {
		t.Error("an ended booking still counts")
	}
	if diff := cmp.Diff(want, loadOf(&tr, s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPrefillCompletesOnce(t *testing.T) {
	var tr load.Tracker
	b := book(&tr, tr.Add(), "A", 16)
	if !tr.PrefillComplete(b, start) || tr.PrefillComplete(b, start) {
		t.Error("want true, then false")
	}
	if tr.AddBlocks(b, -1) {
		t.Error("blocks were taken away")
	}
}
