package core_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

func TestDetailIsWhatTheChoiceWasExpectedToBring(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) {
		c.Queue.Classes = []queue.Class{
			{Name: "default", Weight: 1, Order: queue.FCFS, Timeout: time.Second},
			{Name: "bounded", Weight: 1, Order: queue.FCFS, Timeout: time.Second, Busy: queue.Busy{PrefillTokens: 20, ActiveRequests: 3}, Limits: queue.Limits{Requests: 1}},
		}
	})
	rec := twoRanks(2, "w2")
	rec.MaxBatchedTokens, rec.TotalKVBlocks = 8192, 500
	w.join(t, rec)
	text := prompt('A', 40)
	w.cache.store(fleet.Worker{ID: 2}, text[:16], 16)
	w.cache.store(fleet.Worker{ID: 2, Rank: 1}, text[:32], 16)
	first := fleet.Worker{ID: 2}
	pinned := func(kind core.Kind, id, class string) *core.Request {
		return &core.Request{
			Kind: kind, SelectionID: id, Class: class, Partition: model("m1"), Prompt: core.Prompt{Tokens: text}, Detail: true,
			Pin: &core.Pin{ID: new(first.ID), Rank: new(first.Rank)},
		}
	}
	want := &core.Detail{
		Sequences: chain(t, kvcache.Hashing{Seed: kvcache.Seed("", "")}, text),
		Ranks: []core.RankOverlap{
			{Worker: first, Name: "w2", Overlap: kvcache.Overlap{Device: 1}},
			{Worker: fleet.Worker{ID: 2, Rank: 1}, Name: "w2", Overlap: kvcache.Overlap{Device: 2}},
		},
		UncachedTokens: 24, DecodeBlocks: 3, MaxBatchedTokens: 8192, TotalKVBlocks: 500,
	}
	check := func(req *core.Request) {
		t.Helper()
		sel, err := w.Select(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		this := *want
		if req.Kind != core.Book {
			this.Sequences = nil // only a booking counts by them
		}
		if d := cmp.Diff(&this, sel.Detail); d != "" {
			t.Errorf("%s %s: %s", req.Kind, req.Class, d)
		}
		if sel.Overlap != want.Ranks[0].Overlap {
			t.Errorf("overlap %+v", sel.Overlap)
		}
	}
	check(pinned(core.Query, "", ""))
	check(pinned(core.Query, "kept", ""))
	both := pinned(core.Query, "", "") // both ranks are candidates
	both.Pin, both.Target = nil, both.Pin
	check(both)
	check(pinned(core.Book, "a", ""))
	want.PrefillTokens, want.DecodeBlocks = 24, 4 // two of its three are there
	check(pinned(core.Advisory, "", ""))
	want.PrefillBusy, want.DecodeBusy = new(true), new(false)
	check(pinned(core.Advisory, "", "bounded"))
	for _, id := range []string{"b", "c"} {
		req := pinned(core.Book, id, "")
		req.Detail = false
		sel, err := w.Select(t.Context(), req)
		if err != nil || sel.Detail != nil {
			t.Errorf("%v: detail that nobody asked for: %v", err, sel.Detail)
		}
	}
	want.PrefillTokens, want.DecodeBlocks, want.DecodeBusy = 72, 6, new(true)
	check(pinned(core.Advisory, "", "bounded"))
}

func TestDetailOfAPolicysChoiceWithoutAnIndex(t *testing.T) {
	w := lookWorld(t, core.SelectionHost{})
	sel, err := w.Select(t.Context(), &core.Request{Kind: core.Query, Partition: model("m1"), Prompt: core.Prompt{Count: 40}, Detail: true})
	if err != nil {
		t.Fatal(err)
	}
	d := sel.Detail
	if d == nil || len(d.Sequences) != 0 || d.UncachedTokens != 40 || d.DecodeBlocks != 3 || len(d.Ranks) != sel.Ranks {
		t.Errorf("got %+v", d)
	}
}

// The caller owns the detail: what is kept for the booking has none.
func TestAKeptSelectionHasNoDetail(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, record("w1", "m1"))
	q := bookRequest("q", prompt('A', 160))
	q.Kind, q.Detail = core.Query, true
	if sel, err := w.Select(t.Context(), q); err != nil || sel.Detail == nil {
		t.Fatalf("%v: no detail", err)
	}
	if sel, err := reserveKept(t.Context(), w); err != nil || sel.Detail != nil {
		t.Errorf("%v: %+v", err, sel)
	}
}
