package exact_test

import (
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

// What is said about a block that the index gave up is counted as that, costs no trust, and never has a block begin a
// prompt that it does not begin; a new store makes it known again, and a clear ends it all.
func TestWhatFollowsFromABlockThatWasGivenUp(t *testing.T) {
	x := exact.NewEvicting(size)
	apply(t, x.Index, w1, none(), stored(ids(1, 2), numbers(1, 2)))
	apply(t, x.Index, w2, none(), stored(ids(1, 2), numbers(1, 2)))
	var gone []fleet.Worker
	x.Evict(1<<40, func(w fleet.Worker, _ kvcache.Tier, _ kvcache.EngineHash) { gone = append(gone, w) })
	if len(gone) != 4 || device(t, x.Index, w1, ids(1, 2)) != 0 || x.Evicted() != 4 {
		t.Fatalf("%v were told, %d counted", gone, x.Evicted())
	}
	if res := apply(t, x.Index, w1, map[string]uint64{"evicted_parent": 1}, child(stored(ids(3, 1), numbers(3)), 2)); res.Degraded {
		t.Error("the worker is not trusted any more")
	}
	if got := device(t, x.Index, w1, ids(3, 1)); got != 0 {
		t.Error("a block without a parent begins a prompt")
	}
	apply(t, x.Index, w1, map[string]uint64{"evicted_parent": 1}, child(stored(ids(4, 1), numbers(4)), 3))
	apply(t, x.Index, w1, map[string]uint64{"evicted_block": 2}, removed(numbers(1, 3)))
	apply(t, x.Index, w1, none(), stored(ids(1, 2), numbers(1, 2)), child(stored(ids(1, 3)[2*size:], numbers(3)), 2))
	if got := device(t, x.Index, w1, ids(1, 3)); got != 3 {
		t.Errorf("%d blocks after they were stored anew", got)
	}
	x.Clear(w1)
	if res := apply(t, x.Index, w1, map[string]uint64{"unknown_parent": 1}, child(stored(ids(3, 1), numbers(3)), 2)); !res.Degraded {
		t.Error("an engine that began anew is trusted beyond what it told")
	}
}

// A cap for which there is never room drops what comes.
func TestACapOfAByteDropsAll(t *testing.T) {
	x := exact.NewCapped(size, 1)
	for range 2 {
		apply(t, x, w1, map[string]uint64{"index_full": 2}, stored(ids(1, 2), numbers(1, 2)))
	}
}
