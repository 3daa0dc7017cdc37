package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

func ranked(name string, rank uint32) fleet.Worker {
	return fleet.Worker{ID: fleet.IDFromName(name), Rank: rank}
}

// twoRanks is a record of a worker with an id of its own and two ranks.
func twoRanks(id fleet.WorkerID, name string) fleet.Record {
	rec := record(name, "m1")
	rec.ID, rec.DPSize = id, 2
	return rec
}

// lookWorld has the worker 1 with rank 0 and the worker 2 with ranks 0 and 1.
func lookWorld(t *testing.T, host core.SelectionHost, change ...func(*core.Config)) *world {
	t.Helper()
	w := newWorldIn(t, host, use("builtin:kv-aware"), nil, change...)
	one := record("w1", "m1")
	one.ID = 1
	w.join(t, one, twoRanks(2, "w2"))
	return w
}

func potential(t *testing.T, w *world, q *core.Lookup) []core.PotentialLoad {
	t.Helper()
	loads, err := w.PotentialLoads(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return loads
}

func TestOverlapsListEveryReadyRankInOrder(t *testing.T) {
	around := newSurroundings()
	around.shared = []kvcache.BlockRange{{Start: 1, End: 9}}
	w := lookWorld(t, around.host())
	tokens := prompt('A', 50) // three blocks and a part of a fourth
	w.cache.store(fleet.Worker{ID: 2, Rank: 1}, tokens[:32], 16)
	drains := record("w3", "m1")
	drains.ID = 3
	w.join(t, drains)
	if err := w.SetLifecycle(3, core.Draining, nil); err != nil {
		t.Fatal(err)
	}
	got, err := w.Overlaps(t.Context(), &core.Lookup{Partition: fleet.PartitionKey{Model: "m1"}, Prompt: core.Prompt{Tokens: tokens}})
	if err != nil {
		t.Fatal(err)
	}
	want := &core.OverlapReport{
		Partition: model("m1"), BlockSize: 16, Blocks: 3,
		Ranks: []core.RankOverlap{
			{Worker: fleet.Worker{ID: 1}, Name: "w1", Overlap: kvcache.Overlap{Shared: 2}},
			{Worker: fleet.Worker{ID: 2}, Name: "w2", Overlap: kvcache.Overlap{Shared: 2}},
			{Worker: fleet.Worker{ID: 2, Rank: 1}, Name: "w2", Overlap: kvcache.Overlap{Device: 2, Shared: 1}},
		},
		Shared: []kvcache.BlockRange{{Start: 1, End: 3}}, SharedAsked: true,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	around.mu.Lock()
	around.down = true
	around.mu.Unlock()
	got, err = w.Overlaps(t.Context(), &core.Lookup{Partition: model("m1"), Prompt: core.Prompt{Tokens: tokens}})
	if err != nil || got.SharedErr == nil || !got.SharedAsked || len(got.Shared) != 0 || got.Ranks[2].Overlap != (kvcache.Overlap{Device: 2}) {
		t.Errorf("with the shared cache down: %+v, %v", got, err)
	}
}

// A rank of the released service shows 3 blocks for a prompt of 9 tokens at block
// size 4: the last one counts whole.
func TestPotentialLoadsAddThePromptToEachRank(t *testing.T) {
	w := lookWorld(t, core.SelectionHost{})
	text := prompt('A', 40)
	q := &core.Lookup{Partition: model("m1"), Prompt: core.Prompt{Tokens: text}}
	empty := []core.PotentialLoad{
		{Worker: fleet.Worker{ID: 1}, Name: "w1", PrefillTokens: 40, DecodeBlocks: 3},
		{Worker: fleet.Worker{ID: 2}, Name: "w2", PrefillTokens: 40, DecodeBlocks: 3},
		{Worker: fleet.Worker{ID: 2, Rank: 1}, Name: "w2", PrefillTokens: 40, DecodeBlocks: 3},
	}
	if d := cmp.Diff(empty, potential(t, w, q)); d != "" {
		t.Error(d)
	}
	booking := &core.Booking{SelectionID: "a", Partition: model("m1"), Worker: new(fleet.WorkerID(1)), Prompt: core.Prompt{Tokens: text}}
	if _, err := w.Reserve(t.Context(), booking); err != nil {
		t.Fatal(err)
	}
	w.cache.store(fleet.Worker{ID: 2}, text[:16], 16)
	want := []core.PotentialLoad{
		{Worker: fleet.Worker{ID: 1}, Name: "w1", PrefillTokens: 80, DecodeBlocks: 4, ActiveRequests: 1}, // two blocks are there already
		{Worker: fleet.Worker{ID: 2}, Name: "w2", PrefillTokens: 24, DecodeBlocks: 3},
		{Worker: fleet.Worker{ID: 2, Rank: 1}, Name: "w2", PrefillTokens: 40, DecodeBlocks: 3},
	}
	if d := cmp.Diff(want, potential(t, w, q)); d != "" {
		t.Error(d)
	}
	q.AssumeReuse, q.TrackPrefill = new(false), new(false)
	want[0].PrefillTokens, want[0].DecodeBlocks, want[1].PrefillTokens, want[2].PrefillTokens = 40, 6, 0, 0
	if d := cmp.Diff(want, potential(t, w, q)); d != "" {
		t.Errorf("without reuse and prefill: %s", d)
	}
}

// A look changes nothing, and is answered while requests wait and are refused.
func TestALookChangesNothing(t *testing.T) {
	w := lookWorld(t, core.SelectionHost{}, func(c *core.Config) {
		c.Queue.Classes = []queue.Class{{Name: "default", Weight: 1, Order: queue.FCFS, Timeout: time.Second, Busy: queue.Busy{ActiveRequests: 1}}} // nobody may wait
	})
	for _, id := range []string{"a", "b", "c"} {
		if _, err := w.Select(t.Context(), bookRequest(id, prompt('A', 32))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Select(t.Context(), bookRequest("d", prompt('A', 32))); codeOf(err) != core.CodeQueueFull {
		t.Fatalf("got %v; want the queue to be full", err)
	}
	before, decided := w.Partitions(), len(w.heard.decided)
	records := len(w.Decisions().List(core.DecisionFilter{}))
	q := &core.Lookup{Partition: model("m1"), Prompt: core.Prompt{Tokens: prompt('A', 64)}}
	if _, err := w.Overlaps(t.Context(), q); err != nil {
		t.Error(err)
	}
	potential(t, w, q)
	if d := cmp.Diff(before, w.Partitions()); d != "" {
		t.Error(d)
	}
	if n := len(w.heard.decided); n != decided {
		t.Errorf("telemetry heard of %d decisions more", n-decided)
	}
	if n := len(w.Decisions().List(core.DecisionFilter{})); n != records {
		t.Errorf("%d records more", n-records)
	}
	if n := w.Reservations(); n != 3 {
		t.Errorf("%d reservations", n)
	}
}

func TestALookIsRefusedAsASelectionIs(t *testing.T) {
	for name, c := range map[string]struct {
		arrange func(w *world)
		q       core.Lookup
		want    core.Code
	}{
		"unknown model": {q: core.Lookup{Partition: model("nope")}, want: core.CodeModelNotFound},
		"no worker": {
			arrange: func(w *world) { _ = w.Commit(core.Change{Removals: []fleet.WorkerID{1, 2}}) },
			q:       core.Lookup{Partition: model("m1")}, want: core.CodeNoWorkers,
		},
		"none ready": {
			arrange: func(w *world) {
				_ = w.SetLifecycle(1, core.Draining, nil)
				_ = w.SetLifecycle(2, core.Incomplete, nil)
			},
			q: core.Lookup{Partition: model("m1")}, want: core.CodeNoWorkers,
		},
		"ejected": {
			arrange: func(w *world) {
				_ = w.SetLifecycle(1, core.Draining, nil)
				_ = w.SetLifecycle(2, core.Ejected, nil)
			},
			q: core.Lookup{Partition: model("m1")}, want: core.CodeWorkersEjected,
		},
		"closed":          {arrange: func(w *world) { w.Close() }, q: core.Lookup{Partition: model("m1")}, want: core.CodeNotReady},
		"length below 0":  {q: core.Lookup{Partition: model("m1"), Prompt: core.Prompt{Count: -1}}, want: core.CodeInvalid},
		"sequence hashes": {q: core.Lookup{Partition: model("m1"), Prompt: core.Prompt{Blocks: []kvcache.BlockHash{1, 2}, Sequences: []kvcache.SequenceHash{1}}}, want: core.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			w := lookWorld(t, core.SelectionHost{})
			if c.arrange != nil {
				c.arrange(w)
			}
			if _, err := w.Overlaps(t.Context(), &c.q); codeOf(err) != c.want {
				t.Errorf("Overlaps: got %v; want %s", err, c.want)
			}
			if _, err := w.PotentialLoads(t.Context(), &c.q); codeOf(err) != c.want {
				t.Errorf("PotentialLoads: got %v; want %s", err, c.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lookWorld(t, core.SelectionHost{}).Overlaps(ctx, &core.Lookup{Partition: model("m1")}); err == nil {
		t.Error("a caller that has gone is answered")
	}
}

// Bookings, lookups and changes of the workers at once: for the race detector, and
// every answer is one of whole workers.
func TestLooksWhileWorkersComeAndGo(t *testing.T) {
	w := lookWorld(t, core.SelectionHost{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 300 {
			w.join(t, twoRanks(3, "w3"))
			if err := w.Commit(core.Change{Removals: []fleet.WorkerID{3}}); err != nil {
				t.Error(err)
			}
		}
	}()
	q := &core.Lookup{Partition: model("m1"), Prompt: core.Prompt{Tokens: prompt('A', 64)}}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if sel, err := w.Select(t.Context(), bookRequest("", prompt('A', 64))); err == nil {
			sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		}
		if n := len(potential(t, w, q)); n != 3 && n != 5 {
			t.Fatalf("%d ranks", n)
		}
		if o, err := w.Overlaps(t.Context(), q); err != nil || len(o.Ranks) != 3 && len(o.Ranks) != 5 {
			t.Fatalf("%v, %v", o, err)
		}
	}
}
