package core_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

func TestSlowPolicyOfOnePartitionDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, use("builtin:kv-aware"), nil)
		gate := make(chan struct{})
		asked := 0
		w.policies.gate = func(key fleet.PartitionKey) error {
			if key.Model == "slow" {
				asked++
				<-gate
			}
			return nil
		}
		done := make(chan error, 2)
		for range 2 { // the second waits for the first instead of building again
			go func() { done <- w.Prepare(t.Context(), model("slow"), 16) }()
			synctest.Wait()
		}
		w.join(t, record("w1", "m1"))
		if _, err := w.Select(t.Context(), bookRequest("r", nil)); err != nil {
			t.Errorf("another partition's selection: %v", err)
		}
		if _, _, ok := w.ResolveModel("slow", ""); ok {
			t.Error("a partition is visible before it has a worker")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Prepare(ctx, model("slow"), 16); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v; want a cancelled wait", err)
		}
		close(gate)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if asked != 1 {
			t.Errorf("the policy was resolved %d times; want once", asked)
		}
	})
}

func TestPrepareThatFailsLeavesNothing(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	broken := errors.New("no such policy")
	w.policies.gate = func(fleet.PartitionKey) error { return broken }
	if err := w.Prepare(t.Context(), model("m1"), 16); !errors.Is(err, broken) {
		t.Fatalf("got %v; want the source's error", err)
	}
	err := w.Commit(core.Change{Upserts: []core.Member{{Record: record("w1", "m1"), Lifecycle: core.Ready}}})
	if f, ok := errors.AsType[*fleet.FieldError](err); !ok || f.Field != "partition" {
		t.Errorf("got %v; want the partition refused", err)
	}
	w.policies.gate = nil
	w.join(t, record("w1", "m1"))
}

func TestCommitIsRefusedWhole(t *testing.T) {
	good := core.Member{Record: record("w2", "m1"), Lifecycle: core.Ready}
	with := func(f func(*core.Member)) core.Member {
		m := core.Member{Record: record("w3", "m1"), Lifecycle: core.Ready}
		f(&m)
		return m
	}
	for name, c := range map[string]struct {
		change core.Change
		field  string
	}{
		"same worker twice":      {core.Change{Upserts: []core.Member{good, good}}, "id"},
		"upserted and removed":   {core.Change{Upserts: []core.Member{good}, Removals: []fleet.WorkerID{fleet.IDFromName("w2")}}, "id"},
		"removed twice":          {core.Change{Removals: []fleet.WorkerID{1, 1}}, "removals"},
		"a name is taken":        {core.Change{Upserts: []core.Member{good, with(func(m *core.Member) { m.Record.Name, m.Record.ID = "w1", 99 })}}, "name"},
		"bad record":             {core.Change{Upserts: []core.Member{good, with(func(m *core.Member) { m.Record.DPSize = 5000 })}}, "dp_size"},
		"block size":             {core.Change{Upserts: []core.Member{good, with(func(m *core.Member) { m.BlockSize = 32 })}}, "block_size"},
		"partition not prepared": {core.Change{Upserts: []core.Member{good, with(func(m *core.Member) { m.Record.Model = "m9" })}}, "partition"},
		"lifecycle":              {core.Change{Upserts: []core.Member{good, with(func(m *core.Member) { m.Lifecycle = "gone" })}}, "lifecycle"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, use("builtin:kv-aware"), nil)
			w.join(t, record("w1", "m1"))
			before := w.Partitions()
			err := w.Commit(c.change)
			if f, ok := errors.AsType[*fleet.FieldError](err); !ok || f.Field != c.field {
				t.Errorf("got %v; want a refusal of %q", err, c.field)
			}
			if diff := cmp.Diff(before, w.Partitions()); diff != "" {
				t.Errorf("a refused change was applied (-before +after):\n%s", diff)
			}
		})
	}
}

func TestNamesCanBeSwappedInOneChange(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	a, b := record("a", "m1"), record("b", "m1")
	a.ID, b.ID = 1, 2
	w.join(t, a, b)
	a.Name, b.Name = "b", "a"
	w.join(t, a, b)
	sel, err := w.Select(t.Context(), &core.Request{Partition: model("m1"), Pin: &core.Pin{Name: "a"}})
	if err != nil || sel.Worker.ID != 2 {
		t.Errorf("got %v, %v; want worker 2", sel, err)
	}
}

// TestReaderNeverSeesAHalfAppliedChange moves two workers between partitions
// and groups; every reader sees both here or both there.
func TestReaderNeverSeesAHalfAppliedChange(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	at := func(modelName string) []fleet.Record {
		return []fleet.Record{record("w1", modelName), record("w2", modelName)}
	}
	w.join(t, at("m2")...)
	w.join(t, at("m1")...)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			var seen []string
			for _, p := range w.Partitions() {
				for _, r := range p.Ranks {
					seen = append(seen, p.Model+"/"+r.Name)
				}
			}
			if s := strings.Join(seen, " "); len(seen) != 2 || seen[0][:2] != seen[1][:2] {
				t.Errorf("saw %s", s)
			}
		}
	})
	for i := range 500 {
		w.join(t, at([]string{"m2", "m1"}[i%2])...)
	}
	close(done)
	wg.Wait()
}

func TestPartitionIsTheSameAfterItWasEmpty(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	resolved := 0
	w.policies.gate = func(fleet.PartitionKey) error { resolved++; return nil }
	for range 3 {
		w.join(t, record("w1", "m1"))
		w.remove(t, "w1")
	}
	if resolved != 1 {
		t.Errorf("the partition was built %d times; want once", resolved)
	}
	if err := w.Prepare(t.Context(), model("m1"), 32); err == nil {
		t.Error("another block size was accepted")
	}
}

func TestClassesHavePoliciesOfTheirOwn(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.policies.classes = map[string]*policy.Handle{
		"batch": handleOf(t, revisionOf(t, "batch", 4, use("builtin:least-load"), nil)),
	}
	w.join(t, record("w1", "m1"))
	for class, want := range map[string]string{"": "default", "batch": "batch", "other": "default"} {
		for range 2 {
			sel, err := w.Select(t.Context(), &core.Request{Partition: model("m1"), Class: class})
			if err != nil || sel.Policy != want {
				t.Errorf("class %q: got %+v, %v; want policy %q", class, sel, err, want)
			}
		}
	}
}

func TestLeastLoadedNamesAReadyWorker(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	if _, _, ok := w.LeastLoaded(model("m1")); ok {
		t.Error("found a worker in no partition")
	}
	recs := workers("m1", 3)
	recs[1].DPSize = 2
	w.join(t, recs...)
	book := func(id, name string) *core.Selection {
		sel, err := w.Select(t.Context(), &core.Request{
			Kind: core.Book, SelectionID: id, Partition: model("m1"), Pin: &core.Pin{Name: name}, Prompt: core.Prompt{Count: 10},
		})
		if err != nil {
			t.Fatal(err)
		}
		return sel
	}
	book("a", "w1")
	book("b", "w2")
	book("c", "w2")
	last := book("d", "w3")
	if err := w.SetLifecycle(fleet.IDFromName("w3"), core.Draining, nil); err != nil {
		t.Fatal(err)
	}
	name, endpoint, ok := w.LeastLoaded(model("m1"))
	if name != "w1" || endpoint != "http://w1.test:8000" || !ok {
		t.Errorf("got %s %s %v; want w1", name, endpoint, ok)
	}
	last.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
	if err := w.SetLifecycle(fleet.IDFromName("w3"), core.Ready, nil); err != nil {
		t.Fatal(err)
	}
	if name, _, _ := w.LeastLoaded(model("m1")); name != "w3" {
		t.Errorf("got %s; want w3, which is idle", name)
	}
}
