package wire_test

import (
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/kvcache"
)

var worker = fleet.Worker{ID: 1}

// feed applies a capture's messages to an index and returns all drops.
func feed(t *testing.T, x *exact.Index, messages [][][]byte) kvcache.DropCounts {
	t.Helper()
	var drops kvcache.DropCounts
	var b wire.Batch
	for i, frames := range messages {
		if err := wire.DecodeBatch(frames[2], &b); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		drops.Add(&b.Drops)
		res := x.Apply(worker, b.Events)
		drops.Add(&res.Drops)
	}
	return drops
}
