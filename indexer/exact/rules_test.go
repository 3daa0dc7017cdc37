package exact_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

const size = 16

var (
	w1 = fleet.Worker{ID: 1}
	w2 = fleet.Worker{ID: 2}
)

// ids returns the tokens of n blocks, different for each first.
func ids(first, n int) []uint32 {
	t := make([]uint32, n*size)
	for i := range t {
		t[i] = uint32(1000*first + i)
	}
	return t
}

func numbers(hs ...uint64) []kvcache.EngineHash {
	var out []kvcache.EngineHash
	for _, h := range hs {
		out = append(out, kvcache.NumberHash(h))
	}
	return out
}

func span(from, n uint64) []kvcache.EngineHash {
	var out []kvcache.EngineHash
	for h := range n {
		out = append(out, kvcache.NumberHash(from+h))
	}
	return out
}

func stored(tokens []uint32, hashes []kvcache.EngineHash) kvcache.Event {
	return kvcache.Event{Kind: kvcache.Stored, Hashes: hashes, Tokens: tokens, BlockSize: size}
}

func removed(hashes []kvcache.EngineHash) kvcache.Event {
	return kvcache.Event{Kind: kvcache.Removed, Hashes: hashes}
}

func child(e kvcache.Event, parent uint64) kvcache.Event {
	e.Parent, e.HasParent = kvcache.NumberHash(parent), true
	return e
}

func find(t *testing.T, x indexer.Indexer, w fleet.Worker, tokens []uint32, adapter, salt string) kvcache.Overlap {
	t.Helper()
	blocks, err := kvcache.BlockHashes(nil, tokens, size, kvcache.Seed(adapter, salt))
	if err != nil {
		t.Fatal(err)
	}
	out := make([]kvcache.Overlap, 1)
	x.Find(blocks, []fleet.Worker{w}, out)
	return out[0]
}

func device(t *testing.T, x indexer.Indexer, w fleet.Worker, tokens []uint32) uint32 {
	t.Helper()
	return find(t, x, w, tokens, "", "").Device
}

func apply(t *testing.T, x indexer.Indexer, w fleet.Worker, drops map[string]uint64, events ...kvcache.Event) kvcache.Applied {
	t.Helper()
	res := x.Apply(w, events)
	if d := cmp.Diff(drops, res.Drops.Map()); d != "" {
		t.Errorf("drops: %s", d)
	}
	return res
}

func none() map[string]uint64 { return map[string]uint64{} }

func TestK5_AStoreBelowAnUnknownParentIsDroppedAndCounted(t *testing.T) {
	x := exact.New(size)
	res := apply(t, x, w1, map[string]uint64{"unknown_parent": 3}, child(stored(ids(1, 3), span(1, 3)), 999))
	if !res.Degraded {
		t.Error("the rank is not degraded")
	}
	if got := device(t, x, w1, ids(1, 3)); got != 0 {
		t.Errorf("overlap %d, want 0", got)
	}
	res = apply(t, x, w1, map[string]uint64{"unknown_parent": 3}, child(stored(ids(1, 3), span(1, 3)), 999), kvcache.Event{Kind: kvcache.Cleared})
	if res.Degraded {
		t.Error("degraded though a clear followed")
	}
}

func TestK6_AListThatRepeatsOrHoldsItsParentIsDroppedWhole(t *testing.T) {
	x := exact.New(size)
	apply(t, x, w1, none(), stored(ids(1, 50), span(100, 50)))
	apply(t, x, w1, map[string]uint64{"duplicate_in_list": 3}, stored(ids(2, 3), numbers(1, 2, 1)))
	apply(t, x, w1, map[string]uint64{"self_parent": 1}, child(stored(ids(3, 1), numbers(5)), 5))
	apply(t, x, w1, map[string]uint64{"duplicate_in_list": 20}, stored(ids(4, 20), append(span(200, 19), kvcache.NumberHash(200))))
	if got := x.Blocks(w1); got != (kvcache.TierCounts{50}) {
		t.Errorf("blocks %v, want 50 on the device", got)
	}
	for first, want := range map[int]uint32{1: 50, 2: 0, 3: 0, 4: 0} {
		if got := device(t, x, w1, ids(first, 50)); got != want {
			t.Errorf("prompt %d: overlap %d, want %d", first, got, want)
		}
	}
}

func TestK7_EveryHashFormIsFoundByItsRemoval(t *testing.T) {
	x := exact.New(size)
	raw, _ := kvcache.BytesHash([]byte("0123456789abcdef0123456789abcdef"))
	signed := int64(-5)
	forms := []kvcache.EngineHash{kvcache.NumberHash(uint64(signed)), kvcache.NumberHash(1<<63 + 7), raw}
	apply(t, x, w1, none(), stored(ids(1, 3), forms))
	tail := stored(ids(2, 1), numbers(9))
	tail.Parent, tail.HasParent = raw, true
	apply(t, x, w1, none(), tail)
	apply(t, x, w2, none(), stored(ids(1, 3), numbers(1, 2, 3)))
	if got := device(t, x, w1, append(ids(1, 3), ids(2, 1)...)); got != 4 {
		t.Errorf("overlap %d, want 4", got)
	}
	res := apply(t, x, w1, none(), removed(forms))
	if res.Removed != 3 || device(t, x, w1, ids(1, 3)) != 0 || device(t, x, w2, ids(1, 3)) != 3 {
		t.Errorf("removed %d", res.Removed)
	}
}

func TestK9_AnotherBlockSizeIsRefusedLoudly(t *testing.T) {
	x := exact.New(size)
	e := stored(ids(1, 8), numbers(1, 2))
	e.BlockSize = 64
	if res := apply(t, x, w1, map[string]uint64{"block_size_mismatch": 2}, e); !res.Degraded {
		t.Error("the rank is not degraded")
	}
	if got := device(t, x, w1, ids(1, 8)); got != 0 {
		t.Errorf("overlap %d, want 0", got)
	}
}

func TestAShortBlockBehindFullOnesIsLeftOutWithoutHarm(t *testing.T) {
	x := exact.New(size)
	short := func(hash uint64) kvcache.Event {
		e := stored(ids(2, 1)[:4], numbers(hash))
		e.BlockSize = 4
		return e
	}
	if res := apply(t, x, w1, map[string]uint64{"block_size_mismatch": 1}, short(1)); !res.Degraded {
		t.Error("a rank that only sends short blocks is not degraded")
	}
	apply(t, x, w1, none(), stored(ids(1, 1), numbers(2)))
	if res := apply(t, x, w1, map[string]uint64{"partial_block": 1}, child(short(3), 2)); res.Degraded {
		t.Error("degraded by a partial block")
	}
	if res := apply(t, x, w1, map[string]uint64{"opaque_parent": 1}, child(stored(ids(3, 1), numbers(4)), 3)); res.Degraded {
		t.Error("degraded by a block behind a partial one")
	}
	apply(t, x, w1, none(), removed(numbers(3, 4)))
}

func TestK10_AdaptersHaveTheirOwnScope(t *testing.T) {
	x := exact.New(size)
	a := stored(ids(1, 4), span(1, 4))
	a.Adapter = "A"
	apply(t, x, w1, none(), a)
	apply(t, x, w2, none(), stored(ids(1, 4), span(1, 4)))
	for _, c := range []struct {
		adapter    string
		one, other uint32
	}{{"", 0, 4}, {"A", 4, 0}, {"B", 0, 0}} {
		if got := find(t, x, w1, ids(1, 4), c.adapter, "").Device; got != c.one {
			t.Errorf("adapter %q on w1: %d, want %d", c.adapter, got, c.one)
		}
		if got := find(t, x, w2, ids(1, 4), c.adapter, "").Device; got != c.other {
			t.Errorf("adapter %q on w2: %d, want %d", c.adapter, got, c.other)
		}
	}
}

func TestASaltHoldsForTheWholeChain(t *testing.T) {
	x := exact.New(size)
	root := stored(ids(1, 1), numbers(1))
	root.Salt = "tenant"
	same := child(stored(ids(1, 3)[2*size:], numbers(3)), 2)
	same.Salt = "tenant"
	other := child(stored(ids(2, 1), numbers(4)), 3)
	other.Salt = "else"
	apply(t, x, w1, map[string]uint64{"conflicting_salt": 1}, root, child(stored(ids(1, 2)[size:], numbers(2)), 1), same, other)
	if got := find(t, x, w1, ids(1, 3), "", "tenant").Device; got != 3 {
		t.Errorf("overlap with the salt %d, want 3", got)
	}
	if got := device(t, x, w1, ids(1, 3)); got != 0 {
		t.Errorf("overlap without the salt %d, want 0", got)
	}
}

func TestK11_OnlyTheMainGroupCounts(t *testing.T) {
	x := exact.New(size)
	full := stored(ids(1, 4), span(1, 4))
	full.Attention = kvcache.AttentionPrefix
	window := stored(ids(1, 4), span(1, 4))
	window.Attention, window.Group = kvcache.AttentionWindowed, 1
	apply(t, x, w1, map[string]uint64{"other_group": 4}, full, window)
	gone := removed(span(1, 4))
	gone.Group = 1
	apply(t, x, w1, map[string]uint64{"other_group": 4}, gone)
	gone.Group = 7
	apply(t, x, w1, map[string]uint64{"unknown_group": 4}, gone)
	if got := device(t, x, w1, ids(1, 4)); got != 4 {
		t.Errorf("overlap %d, want 4", got)
	}
	x.Clear(w1)
	full.Group = 1
	apply(t, x, w1, none(), full)
	if got := device(t, x, w1, ids(1, 4)); got != 4 {
		t.Errorf("after a restart the groups are not learned anew: overlap %d", got)
	}
}

func TestK12_TiersAreSetsOfTheirOwn(t *testing.T) {
	x := exact.New(size)
	apply(t, x, w1, none(), stored(ids(1, 10), span(1, 10)), removed(span(6, 5)))
	host := child(stored(ids(1, 10)[5*size:], span(6, 5)), 5)
	host.Tier = kvcache.Host
	apply(t, x, w1, none(), host)
	if got, want := find(t, x, w1, ids(1, 10), "", ""), (kvcache.Overlap{Device: 5, Host: 5}); got != want {
		t.Errorf("overlap %+v, want %+v", got, want)
	}
	if got := x.Blocks(w1); got != (kvcache.TierCounts{5, 5}) {
		t.Errorf("blocks %v", got)
	}
}

func TestAnAnnouncementWithoutTokensNeedsAKnownBlock(t *testing.T) {
	x := exact.New(size)
	apply(t, x, w1, none(), stored(ids(1, 2), span(1, 2)))
	also := kvcache.Event{Kind: kvcache.Stored, Tier: kvcache.Host, Hashes: numbers(1, 2, 77)}
	apply(t, x, w1, map[string]uint64{"unknown_placeholder": 1}, also)
	apply(t, x, w1, none(), removed(span(1, 2)))
	if got, want := find(t, x, w1, ids(1, 2), "", ""), (kvcache.Overlap{Host: 2}); got != want {
		t.Errorf("overlap %+v, want %+v", got, want)
	}
}

func TestImagesAreMatchedByTheirHashBehindAChainsSalt(t *testing.T) {
	x := exact.New(size)
	root := stored(ids(1, 2), numbers(1, 2))
	root.Salt, root.Adapter, root.Items = "tenant", "ad", [][]uint64{nil, {7, 5}}
	next := child(stored(ids(1, 4)[2*size:], numbers(3, 4)), 2) // an engine names the salt once
	next.Adapter, next.Items = "ad", [][]uint64{{5}}
	apply(t, x, w1, none(), root, next)
	for _, c := range []struct {
		name, adapter, salt string
		items               [][]uint64
		want                uint32
	}{
		{"the images, in another order", "ad", "tenant", [][]uint64{nil, {5, 7}, {5}}, 4},
		{"another image at the end", "ad", "tenant", [][]uint64{nil, {5, 7}, {6}}, 2},
		{"an image more behind it", "ad", "tenant", [][]uint64{nil, {5, 7}, {5}, {5}}, 3},
		{"one image", "ad", "tenant", [][]uint64{nil, {7}, {5}}, 1},
		{"none", "ad", "tenant", nil, 1},
		{"another tenant", "ad", "other", [][]uint64{nil, {5, 7}, {5}}, 0},
		{"no tenant", "ad", "", [][]uint64{nil, {5, 7}, {5}}, 0},
		{"another adapter", "b", "tenant", [][]uint64{nil, {5, 7}, {5}}, 0},
		{"the base model", "", "tenant", [][]uint64{nil, {5, 7}, {5}}, 0},
	} {
		how := kvcache.Hashing{Seed: kvcache.Seed(c.adapter, c.salt), Items: c.items}
		blocks, err := how.Blocks(nil, ids(1, 4), size)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]kvcache.Overlap, 1)
		if x.Find(blocks, []fleet.Worker{w1}, out); out[0].Device != c.want {
			t.Errorf("%s: %d blocks, want %d", c.name, out[0].Device, c.want)
		}
	}
	apply(t, x, w1, none(), removed(numbers(3, 4, 1, 2)))
}

func TestOpaqueBlocksAndTheirChildrenAreLeftOut(t *testing.T) {
	x := exact.New(size)
	e := stored(ids(1, 3), span(1, 3))
	e.Opaque, e.OpaqueFrom = true, 1
	res := apply(t, x, w1, map[string]uint64{"multimodal": 2, "opaque_parent": 1}, e, child(stored(ids(2, 1), numbers(9)), 3))
	if res.Degraded || device(t, x, w1, ids(1, 3)) != 1 {
		t.Errorf("degraded %v, overlap %d", res.Degraded, device(t, x, w1, ids(1, 3)))
	}
	apply(t, x, w1, none(), removed(numbers(2, 3, 9)))
	apply(t, x, w1, map[string]uint64{"unknown_remove": 1}, removed(numbers(2)))
}

func TestATailBehindAnEvictedBlockCountsAgainWhenItReturns(t *testing.T) {
	x := exact.New(size)
	apply(t, x, w1, none(), stored(ids(1, 5), span(1, 5)), removed(numbers(3)))
	if got := device(t, x, w1, ids(1, 5)); got != 2 {
		t.Errorf("with the hole: %d, want 2", got)
	}
	apply(t, x, w1, none(), child(stored(ids(1, 3)[2*size:], numbers(33)), 2))
	if got := device(t, x, w1, ids(1, 5)); got != 5 {
		t.Errorf("after the return under another hash: %d, want 5", got)
	}
}

func TestClearIsForItsRankAndRemoveForgets(t *testing.T) {
	x := exact.New(size)
	rank1 := fleet.Worker{ID: 1, Rank: 1}
	for _, w := range []fleet.Worker{w1, rank1, w2} {
		apply(t, x, w, none(), stored(ids(1, 4), span(1, 4)))
	}
	apply(t, x, rank1, none(), kvcache.Event{Kind: kvcache.Cleared})
	x.Remove(w2)
	x.Remove(fleet.Worker{ID: 77})
	x.Clear(fleet.Worker{ID: 77})
	for w, want := range map[fleet.Worker]uint32{w1: 4, rank1: 0, w2: 0} {
		if got := device(t, x, w, ids(1, 4)); got != want {
			t.Errorf("%s: overlap %d, want %d", w, got, want)
		}
	}
	apply(t, x, w2, none(), stored(ids(1, 2), span(1, 2)))
	if got := device(t, x, w2, ids(1, 4)); got != 2 {
		t.Errorf("after its return: overlap %d, want 2", got)
	}
}
