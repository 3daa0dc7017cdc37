package lora_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
)

// TestAnyPlanKeepsItsPromises lets workers come and go, change their slots and
// what they have loaded, and requests arrive, and checks each plan.
func TestAnyPlanKeepsItsPromises(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 1))
		adapters := []string{"a", "b", "c", "d", "e", "f"}[:1+rng.IntN(6)]
		f := newFarm(t, 1+rng.IntN(4), 1+rng.IntN(3), adapters...)
		next := fleet.WorkerID(100)
		for range 60 {
			switch rng.IntN(6) {
			case 0:
				f.workers = append(f.workers, lora.Worker{ID: next, Slots: rng.IntN(4), Manage: adapters})
				next++
			case 1:
				if len(f.workers) > 1 {
					i := rng.IntN(len(f.workers))
					f.workers = slices.Delete(f.workers, i, i+1)
				}
			case 2:
				f.workers[rng.IntN(len(f.workers))].Slots = rng.IntN(4)
			case 3:
				f.workers[rng.IntN(len(f.workers))].Loaded = nil // it was restarted
			default:
				f.arrive(adapters[rng.IntN(len(adapters))], rng.IntN(30))
			}
			f.tick()
			if broken := f.broken(adapters); broken != "" {
				t.Fatalf("seed %d: %s; workers %+v", seed, broken, f.workers)
			}
		}
		for range 5 {
			f.now = f.now.Add(2 * time.Minute) // no more requests
			f.tick()
		}
		if f.plan(); len(f.actions) > 0 {
			t.Fatalf("seed %d: never at rest: %+v", seed, f.actions)
		}
	}
}

// broken names a promise that the last plan does not keep.
func (f *farm) broken(adapters []string) string {
	placed, slots := map[fleet.WorkerID]int{}, 0
	for _, w := range f.workers {
		slots += w.Slots
	}
	for _, adapter := range adapters {
		set, active, _ := f.table.Of(adapter)
		for i, w := range set {
			placed[w]++
			if !slices.ContainsFunc(f.workers, func(x lora.Worker) bool { return x.ID == w }) {
				return fmt.Sprintf("%s is placed on %d, which has gone", adapter, w)
			}
			if slices.Contains(set[:i], w) {
				return fmt.Sprintf("%s is placed twice on %d", adapter, w)
			}
		}
		if active && slots > 0 && len(set) == 0 {
			return adapter + " is active and has no replica"
		}
		if diff := cmp.Diff(lora.Rendezvous(adapter, set), append([]fleet.WorkerID{}, set...)); diff != "" {
			return "the set of " + adapter + " is out of order: " + diff
		}
	}
	over := 0
	for _, w := range f.workers {
		over += max(0, placed[w.ID]-w.Slots)
	}
	if slots > 0 && over > f.alloc.Overflow() {
		return fmt.Sprintf("%d placements beyond the slots, %d of them told", over, f.alloc.Overflow())
	}
	return ""
}

func BenchmarkTick(b *testing.B) {
	var adapters []string
	for i := range 100 {
		adapters = append(adapters, fmt.Sprint("adapter-", i))
	}
	workers := make([]lora.Worker, 256)
	for i := range workers {
		workers[i] = lora.Worker{ID: fleet.WorkerID(i + 1), Slots: 4, Manage: adapters}
	}
	alloc, now := lora.NewAllocator(lora.DefaultAllocatorConfig()), time.Unix(1_000_000, 0)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(lora.DefaultStep)
		for i, adapter := range adapters {
			for range i {
				alloc.Arrived(adapter, now)
			}
		}
		alloc.Tick(now, workers)
	}
}

func TestArrivalsAreCountedWhileATickPlans(t *testing.T) {
	f := newFarm(t, 4, 2, "a", "b")
	f.tick()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				f.alloc.Arrived("a", time.Unix(1_000_003, 0))
			}
		})
	}
	for range 20 {
		f.tick()
	}
	all.Wait()
	f.tick()
	if _, active, _ := f.table.Of("a"); !active {
		t.Error("2000 arrivals were lost")
	}
}
