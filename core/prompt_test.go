package core_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/plugins/abi"
)

// sequencesOf are the hashes by which load counts a prompt.
func sequencesOf(t *testing.T, w *world, p core.Prompt) []kvcache.SequenceHash {
	t.Helper()
	sel, err := w.Select(t.Context(), &core.Request{Kind: core.Book, Partition: model("m1"), Prompt: p, Detail: true})
	if err != nil {
		t.Fatal(err)
	}
	defer sel.Reservation.Release(completed)
	return sel.Detail.Sequences
}

func chain(t *testing.T, how kvcache.Hashing, tokens []uint32) []kvcache.SequenceHash {
	t.Helper()
	blocks, err := how.Blocks(nil, tokens, 16)
	if err != nil {
		t.Fatal(err)
	}
	return kvcache.SequenceHashes(nil, blocks)
}

func TestHowAPromptIsHashed(t *testing.T) {
	tokens, plain := prompt('A', 49), kvcache.Seed("", "")
	items := [][]uint64{nil, {9, 5}, nil, {1}}
	for name, c := range map[string]struct {
		eagle  bool // the workers'
		prompt core.Prompt
		want   kvcache.Hashing
	}{
		"plain":              {false, core.Prompt{Tokens: tokens}, kvcache.Hashing{Seed: plain}},
		"as the workers":     {true, core.Prompt{Tokens: tokens}, kvcache.Hashing{Seed: plain, Bigram: true}},
		"as the caller says": {false, core.Prompt{Tokens: tokens, Bigram: new(true)}, kvcache.Hashing{Seed: plain, Bigram: true}},
		"and no":             {true, core.Prompt{Tokens: tokens, Bigram: new(false)}, kvcache.Hashing{Seed: plain}},
		"with items":         {false, core.Prompt{Tokens: tokens, Multimodal: items}, kvcache.Hashing{Seed: plain, Items: items}},
		"salt and all":       {true, core.Prompt{Tokens: tokens, Multimodal: items, Salt: "s"}, kvcache.Hashing{Seed: kvcache.Seed("", "s"), Bigram: true, Items: items}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, use("builtin:kv-aware"), nil)
			rec := record("w1", "m1")
			rec.Eagle = c.eagle
			w.join(t, rec)
			if d := cmp.Diff(chain(t, c.want, tokens), sequencesOf(t, w, c.prompt)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestLoadCountsByTheCallersHashes(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, record("w1", "m1"))
	book := func(id string, p core.Prompt) {
		t.Helper()
		if _, err := w.Select(t.Context(), &core.Request{Kind: core.Book, SelectionID: id, Partition: model("m1"), Prompt: p}); err != nil {
			t.Fatal(err)
		}
	}
	held := func(want float64) {
		t.Helper()
		if got := w.loads()["w1/0"].DecodeBlocks; got != want {
			t.Errorf("%v blocks held; want %v", got, want)
		}
	}
	own := []kvcache.SequenceHash{7, 8, 9}
	book("a", core.Prompt{Blocks: []kvcache.BlockHash{1, 2, 3}, Sequences: own, Count: 48})
	held(3)
	book("b", core.Prompt{Blocks: []kvcache.BlockHash{4, 5, 6}, Sequences: own, Count: 48}) // the same to load
	held(3)
	book("c", core.Prompt{Blocks: []kvcache.BlockHash{1, 2, 3}, Count: 48}) // its own chain is another
	held(6)
	if _, err := w.Reserve(t.Context(), &core.Booking{
		SelectionID: "d", Partition: model("m1"), Worker: new(fleet.IDFromName("w1")), Prompt: core.Prompt{Sequences: own, Count: 40},
	}); err != nil { // as the caller has no others
		t.Fatal(err)
	}
	held(6)
	if d := cmp.Diff(own, sequencesOf(t, w, core.Prompt{Blocks: []kvcache.BlockHash{1, 2, 3}, Sequences: slices.Clone(own)})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(chain(t, kvcache.Hashing{Seed: kvcache.Seed("", "")}, prompt('A', 32)), sequencesOf(t, w, core.Prompt{Tokens: prompt('A', 32), Sequences: own})); d != "" {
		t.Errorf("the tokens do not win: %s", d)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if err := w.Free(id, completed); err != nil {
			t.Error(err)
		}
	}
	held(0)
}

func TestSequenceHashesAreAsManyAsBlocks(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, record("w1", "m1"))
	p := core.Prompt{Blocks: []kvcache.BlockHash{1, 2}, Sequences: []kvcache.SequenceHash{7}}
	_, selecting := w.Select(t.Context(), &core.Request{Kind: core.Book, Partition: model("m1"), Prompt: p})
	_, reserving := w.Reserve(t.Context(), &core.Booking{SelectionID: "x", Partition: model("m1"), Worker: new(fleet.IDFromName("w1")), Prompt: p})
	for _, err := range []error{selecting, reserving} {
		if e, ok := errors.AsType[*core.Error](err); !ok || e.Code != core.CodeInvalid || e.Field != "sequence_hashes" {
			t.Errorf("got %v; want sequence_hashes refused", err)
		}
	}
	if msg := w.leftOver(); msg != "" {
		t.Error(msg)
	}
}

func TestASharedCacheKnowsNoBlocksOfText(t *testing.T) {
	around := newSurroundings()
	around.shared = []kvcache.BlockRange{{Start: 0, End: 2}}
	w := newWorldIn(t, around.host(), use("builtin:kv-aware"), nil)
	w.join(t, record("w1", "m1"))
	for exact, want := range map[bool]uint32{true: 2, false: 0} {
		sel, err := w.Select(t.Context(), &core.Request{Partition: model("m1"), Prompt: core.Prompt{Blocks: hashes(3), Count: 48, Exact: exact}})
		if err != nil || sel.Overlap.Shared != want {
			t.Errorf("exact %t: %+v, %v; want %d blocks of the shared cache", exact, sel, err, want)
		}
	}
}

func TestBlockSizeIsThePartitions(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, record("w1", "m1"))
	for key, want := range map[fleet.PartitionKey]int{model("m1"): 16, {Model: "m1"}: 16, model("m2"): 0, {Model: "m1", Group: "g"}: 0} {
		if got := w.BlockSize(key); got != want {
			t.Errorf("%v: %d, want %d", key, got, want)
		}
	}
}

// Where reuse is not assumed a booking shares its blocks with nobody; where prefill is
// not tracked it has none, and the policy sees none on anybody. What is cached is as it is.
func TestWithoutReuseAndPrefill(t *testing.T) {
	var set policy.ColumnSet
	set.AddStd(abi.ColLoadPrefillTokens, abi.ColLoadPotentialPrefillTokens, abi.ColLoadPotentialDecodeBlocks, abi.ColKVOverlapDevice)
	var seen [4]float64
	s := &stage{columns: set, score: func(_ context.Context, tb *policy.Table, scores []float64) error {
		for i, c := range []abi.Column{abi.ColLoadPrefillTokens, abi.ColLoadPotentialPrefillTokens, abi.ColLoadPotentialDecodeBlocks, abi.ColKVOverlapDevice} {
			seen[i] = tb.Column(c)[0]
		}
		clear(scores)
		return nil
	}}
	w := newWorld(t, use("module:s"), stages{s})
	w.join(t, record("w1", "m1"))
	text := prompt('A', 32)
	w.cache.store(ranked("w1", 0), text[:16], 16)
	book := func(id string, reuse, prefill *bool) {
		t.Helper()
		req := bookRequest(id, text)
		req.AssumeReuse, req.TrackPrefill = reuse, prefill
		if _, err := w.Select(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, sees [4]float64, load core.LoadView) {
		t.Helper()
		if d := cmp.Diff(sees, seen); d != "" {
			t.Errorf("%s sees: %s", what, d)
		}
		if d := cmp.Diff(load, w.loads()["w1/0"]); d != "" {
			t.Errorf("after %s: %s", what, d)
		}
	}
	book("a", nil, nil)
	check("the first", [4]float64{0, 32, 2, 1}, core.LoadView{PrefillTokens: 16, DecodeBlocks: 2, ActiveRequests: 1})
	book("b", new(true), new(true))
	check("the same", [4]float64{16, 48, 2, 1}, core.LoadView{PrefillTokens: 32, DecodeBlocks: 2, ActiveRequests: 2})
	book("c", new(false), nil)
	check("one without reuse", [4]float64{32, 64, 4, 1}, core.LoadView{PrefillTokens: 48, DecodeBlocks: 4, ActiveRequests: 3})
	book("d", new(false), nil)
	check("another", [4]float64{48, 80, 6, 1}, core.LoadView{PrefillTokens: 64, DecodeBlocks: 6, ActiveRequests: 4})
	book("e", nil, new(false))
	check("one without prefill", [4]float64{0, 0, 6, 1}, core.LoadView{PrefillTokens: 64, DecodeBlocks: 6, ActiveRequests: 5})
	if err := w.PrefillComplete("e"); err != nil {
		t.Error(err)
	}
	if _, err := w.Reserve(t.Context(), &core.Booking{
		SelectionID: "f", Partition: model("m1"), Worker: new(fleet.IDFromName("w1")), Prompt: core.Prompt{Tokens: text}, TrackPrefill: new(false), AssumeReuse: new(false),
	}); err != nil {
		t.Fatal(err)
	}
	check("a booking by name", seen, core.LoadView{PrefillTokens: 64, DecodeBlocks: 8, ActiveRequests: 6})
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		if err := w.Free(id, completed); err != nil {
			t.Error(err)
		}
	}
	check("all are over", seen, core.LoadView{})
}

// The hashes of one without reuse are in the answer, and no two requests share them,
// whatever their seed.
func TestHashesWithoutReuseAreSharedWithNobody(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, record("w1", "m1"))
	seen := map[kvcache.SequenceHash]bool{}
	for range 2 {
		sel, err := w.Select(t.Context(), &core.Request{
			Kind: core.Book, Partition: model("m1"), Prompt: core.Prompt{Tokens: prompt('A', 64)}, Detail: true, AssumeReuse: new(false), Seed: new(uint64(1)),
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range sel.Detail.Sequences {
			seen[h] = true
		}
		sel.Reservation.Release(completed)
	}
	if len(seen) != 8 {
		t.Errorf("%d different hashes; want 8", len(seen))
	}
}
