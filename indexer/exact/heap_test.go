//go:build !indexcheck

// A check of all invariants at each step is no matter for a million blocks.

package exact_test

import (
	"runtime"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

// liveHeap is what is in use once all garbage is gone.
func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools kept goes with the second one
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestI5_WhatIsRemovedLeavesTheHeapAsItWas(t *testing.T) {
	const workers, blocks, batch = 10, 100_000, 1000
	x := exact.New(size)
	empty := liveHeap()
	for w := range fleet.WorkerID(workers) {
		for from := 0; from < blocks; from += batch {
			e := stored(ids(int(w)*blocks+from, batch), span(uint64(from), batch))
			e.Hashes = span(uint64(w)<<32|uint64(from), batch)
			x.Apply(fleet.Worker{ID: w}, []kvcache.Event{e})
		}
	}
	full := liveHeap()
	for w := range fleet.WorkerID(workers) {
		if n := x.Blocks(fleet.Worker{ID: w})[kvcache.Device]; n != blocks {
			t.Fatalf("%d blocks, want %d", n, blocks)
		}
		x.Remove(fleet.Worker{ID: w})
	}
	left := liveHeap()
	t.Logf("live heap empty %d, full %d, after the removal %d bytes", empty, full, left)
	if left > empty+empty/10 || full < empty+8*workers*blocks {
		t.Errorf("live heap empty %d, full %d, after the removal %d bytes", empty, full, left)
	}
	if n := len(x.Workers()); n != 0 || x.Nodes() != 0 {
		t.Errorf("%d workers, %d nodes", n, x.Nodes())
	}
}
