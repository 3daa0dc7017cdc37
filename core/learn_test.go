package core_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// learner is a world whose index takes bookings over.
func learner(t *testing.T, n int) (w *world, told *[]fleet.Worker) {
	t.Helper()
	w = newWorld(t, use("builtin:kv-aware"), nil)
	told = new([]fleet.Worker)
	w.cache.recorded = func(r fleet.Worker) { *told = append(*told, r) }
	w.join(t, workers("m1", n)...)
	return w, told
}

func TestABookingIsTheNextRequestsOverlap(t *testing.T) {
	w, told := learner(t, 8)
	tokens := prompt('A', 320)
	for _, kind := range []core.Kind{core.Query, core.Advisory} {
		if _, err := w.Select(t.Context(), &core.Request{Kind: kind, Partition: model("m1"), Prompt: core.Prompt{Tokens: tokens}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(*told) > 0 {
		t.Fatalf("recorded %v of requests that book nothing", *told)
	}
	first, err := w.Select(t.Context(), bookRequest("first", tokens))
	if err != nil {
		t.Fatal(err)
	}
	first.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
	second, err := w.Select(t.Context(), bookRequest("second", tokens))
	if err != nil {
		t.Fatal(err)
	}
	if second.Worker != first.Worker || first.Overlap.Device != 0 || second.Overlap.Device != 20 {
		t.Errorf("first %s with %+v, second %s with %+v; want the same worker, and 20 blocks of it", first.Worker, first.Overlap, second.Worker, second.Overlap)
	}
	if !w.cache.byTokens {
		t.Error("recorded by other blocks than those of its tokens")
	}
	if want := []fleet.Worker{first.Worker, first.Worker}; !slices.Equal(*told, want) {
		t.Errorf("recorded %v, want %v", *told, want)
	}
}

// Where the tokens are not all of a prompt, another one with the same tokens has none of
// what it holds, neither in the index nor as load.
func TestAPromptThatItsTokensDoNotTellIsKnownByItsText(t *testing.T) {
	w, _ := learner(t, 1)
	tokens := prompt('A', 320)
	text := func(own kvcache.BlockHash) []kvcache.BlockHash { return []kvcache.BlockHash{1, 2, own, 4, 5} }
	for i, c := range []struct {
		name        string
		prompt      core.Prompt
		found       uint32
		decodeAfter float64
	}{
		{"the first", core.Prompt{Tokens: tokens, Text: text(7)}, 0, 20},
		{"another with the same tokens", core.Prompt{Tokens: tokens, Text: text(8)}, 2, 20 + 18},
		{"the first again", core.Prompt{Tokens: tokens, Text: text(7)}, 5, 38 + 15},
		{"one without a block of text", core.Prompt{Tokens: tokens, Text: []kvcache.BlockHash{}}, 0, 53 + 20},
		{"its tokens alone", core.Prompt{Tokens: tokens[:160]}, 0, 73 + 10},
		{"the beginning by its tokens", core.Prompt{Tokens: tokens, Text: text(9)}, 10, 83 + 18},
		{"more text than tokens", core.Prompt{Tokens: tokens[:32], Text: text(7)}, 2, 101},
	} {
		r := bookRequest(strconv.Itoa(i), nil)
		r.Prompt = c.prompt
		sel, err := w.Select(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if exact := c.prompt.Text == nil; len(c.prompt.Text) > 0 && w.cache.byTokens != exact {
			t.Errorf("%s: recorded by its tokens: %v, want %v", c.name, w.cache.byTokens, exact)
		}
		if got := w.loads()["w1/0"].DecodeBlocks; sel.Overlap.Device != c.found || got != c.decodeAfter {
			t.Errorf("%s: found %d, then %v blocks; want %d and %v", c.name, sel.Overlap.Device, got, c.found, c.decodeAfter)
		}
	}
	held := len(w.cache.held[fleet.Worker{ID: fleet.IDFromName("w1")}])
	b := core.Booking{SelectionID: "named", Partition: model("m1"), Worker: new(fleet.IDFromName("w1")), Prompt: core.Prompt{Tokens: prompt('B', 320), Text: text(10)}}
	if _, err := w.Reserve(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if got := len(w.cache.held[fleet.Worker{ID: fleet.IDFromName("w1")}]) - held; got != 3 {
		t.Errorf("%d blocks more are recorded of a booking, want those of its text", got)
	}
}

func TestASelectionThatIsBookedLaterIsRecordedThen(t *testing.T) {
	w, told := learner(t, 8)
	tokens := prompt('A', 320)
	for _, b := range []core.Booking{
		{SelectionID: "kept"},
		{SelectionID: "named", Worker: new(fleet.IDFromName("w3")), Prompt: core.Prompt{Tokens: tokens}},
	} {
		want := fleet.Worker{ID: fleet.IDFromName("w3")}
		if b.Worker == nil {
			chosen, err := w.Select(t.Context(), &core.Request{Kind: core.Query, SelectionID: b.SelectionID, Partition: model("m1"), Prompt: core.Prompt{Tokens: tokens}})
			if err != nil {
				t.Fatal(err)
			}
			want = chosen.Worker
		}
		*told = nil
		b.Partition = model("m1")
		if _, err := w.Reserve(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if len(*told) != 1 || (*told)[0] != want || len(w.cache.held[want]) != 20 {
			t.Errorf("%s: recorded %v with %d blocks, want %v with 20", b.SelectionID, *told, len(w.cache.held[want]), want)
		}
	}
}

func TestTheIndexForgetsRanksThatLeave(t *testing.T) {
	w, _ := learner(t, 0)
	rec := record("w1", "m1")
	rec.DPSize = 4
	w.join(t, rec)
	id := fleet.IDFromName("w1")
	rec.DPSize = 2
	w.join(t, rec)
	if want := []fleet.Worker{{ID: id, Rank: 2}, {ID: id, Rank: 3}}; !slices.Equal(w.cache.forgotten, want) {
		t.Errorf("forgotten %v, want %v", w.cache.forgotten, want)
	}
	w.cache.forgotten = nil
	w.remove(t, "w1")
	if want := []fleet.Worker{{ID: id}, {ID: id, Rank: 1}}; !slices.Equal(w.cache.forgotten, want) {
		t.Errorf("forgotten %v, want %v", w.cache.forgotten, want)
	}
}

func TestARankThatLeavesWhileItIsRecordedIsForgottenAfterwards(t *testing.T) {
	w, _ := learner(t, 1)
	forgotten := 0 // when the index is told
	w.cache.recorded = func(fleet.Worker) {
		w.remove(t, "w1")
		forgotten = len(w.cache.forgotten)
	}
	if _, err := w.Select(t.Context(), bookRequest("leaves", prompt('A', 320))); err != nil {
		t.Fatal(err)
	}
	if forgotten != 1 || len(w.cache.forgotten) != 2 {
		t.Errorf("forgotten %d times before it was recorded, then %d; want 1 and 2", forgotten, len(w.cache.forgotten))
	}
}

func TestWhatAnotherRouterBookedIsTheNextRequestsOverlap(t *testing.T) {
	w, told := learner(t, 2)
	tokens := prompt('A', 320)
	blocks, err := kvcache.BlockHashes(nil, tokens, 16, kvcache.Seed("", ""))
	if err != nil {
		t.Fatal(err)
	}
	there := fleet.Worker{ID: fleet.IDFromName("w2")}
	for _, c := range []struct {
		model string
		rank  fleet.Worker
		want  bool
	}{{"m1", there, true}, {"m2", there, false}, {"m1", fleet.Worker{ID: 99}, false}, {"m1", fleet.Worker{ID: there.ID, Rank: 1}, false}} {
		if got := w.Learn(model(c.model), c.rank, blocks, true); got != c.want {
			t.Errorf("%s of %s: learned %t, want %t", c.rank, c.model, got, c.want)
		}
	}
	if want := []fleet.Worker{there}; !slices.Equal(*told, want) {
		t.Errorf("recorded %v, want %v", *told, want)
	}
	got, err := w.Select(t.Context(), bookRequest("here", tokens))
	if err != nil || got.Worker != there || got.Overlap.Device != 20 {
		t.Errorf("selected %+v, %v; want %s with 20 blocks", got, err, there)
	}
	w.cache.recorded = func(fleet.Worker) { w.remove(t, "w2") }
	w.cache.forgotten = nil
	if w.Learn(model("m1"), there, blocks, true); len(w.cache.forgotten) != 2 {
		t.Errorf("a rank that left while it was recorded is forgotten %d times, want once more", len(w.cache.forgotten))
	}
}
