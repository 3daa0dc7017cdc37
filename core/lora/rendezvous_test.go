package lora_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
)

func TestRendezvousOrderIsStableWhenAWorkerLeaves(t *testing.T) {
	var all []fleet.WorkerID
	for id := range fleet.WorkerID(40) {
		all = append(all, id)
	}
	for _, adapter := range []string{"a", "sql", "org/adapter-with-a-long-name-of-more-than-sixteen-bytes"} {
		order := lora.Rendezvous(adapter, all)
		for _, gone := range all {
			rest := slices.DeleteFunc(slices.Clone(all), func(w fleet.WorkerID) bool { return w == gone })
			want := slices.DeleteFunc(slices.Clone(order), func(w fleet.WorkerID) bool { return w == gone })
			if diff := cmp.Diff(want, lora.Rendezvous(adapter, rest)); diff != "" {
				t.Fatalf("%s without %d (-want +got):\n%s", adapter, gone, diff)
			}
		}
	}
}

func TestRendezvousOrderDoesNotDependOnTheOrderGiven(t *testing.T) {
	given := ids(5, 1, 4, 1<<63, 2)
	before := slices.Clone(given)
	order := lora.Rendezvous("sql", given)
	slices.Reverse(given)
	if diff := cmp.Diff(order, lora.Rendezvous("sql", given)); diff != "" {
		t.Errorf("reversed (-want +got):\n%s", diff)
	}
	slices.Reverse(given)
	if diff := cmp.Diff(before, given); diff != "" {
		t.Errorf("the list given was changed:\n%s", diff)
	}
}

// The order must be the same in every router and every release: what it gives is
// pinned here.
func TestRendezvousOrderIsPinned(t *testing.T) {
	want := map[string][]fleet.WorkerID{
		"sql":     ids(5, 3, 2, 1, 6, 4),
		"support": ids(6, 4, 5, 2, 3, 1),
	}
	for adapter, order := range want {
		if diff := cmp.Diff(order, lora.Rendezvous(adapter, ids(1, 2, 3, 4, 5, 6))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", adapter, diff)
		}
	}
}

func TestRendezvousSpreadsAdaptersEvenly(t *testing.T) {
	workers := ids(1, 2, 3, 4, 5, 6, 7, 8)
	firsts := map[fleet.WorkerID]int{}
	for i := range 8000 {
		firsts[lora.Rendezvous(fmt.Sprint("adapter-", i), workers)[0]]++
	}
	for _, w := range workers {
		if n := firsts[w]; n < 850 || n > 1150 {
			t.Errorf("worker %d is first for %d of 8000 adapters, want about 1000", w, n)
		}
	}
}
