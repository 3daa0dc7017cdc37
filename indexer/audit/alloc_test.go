//go:build !race

package audit_test

import (
	"testing"
	"time"

	"github.com/routerd/routerd/kvcache"
)

func TestWatchingAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	w.round(same)
	tokens := w.prompt()
	blocks, _ := kvcache.BlockHashes(nil, tokens, size, kvcache.Seed("", ""))
	if n := testing.AllocsPerRun(100, func() {
		w.now = w.now.Add(2 * time.Minute)
		w.Given(w1, blocks, w.now)
		w.Stored(w1, w.now)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
