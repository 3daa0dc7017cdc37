package runtrie_test

import (
	"errors"
	"testing"

	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// A path of more nodes than there are leaves nothing behind, and what was there stays.
func TestNothingIsLeftOfAPathThatDoesNotFit(t *testing.T) {
	x := runtrie.New(5) // the root and four
	x.Lock()
	defer x.Unlock()
	h, err := x.Join()
	if err != nil {
		t.Fatal(err)
	}
	long := make([]kvcache.BlockHash, 6*runtrie.Run)
	for i := range long {
		long[i] = kvcache.BlockHash(i)
	}
	path, err := x.Grow(nil, 0, 0, long[:3])
	if err != nil {
		t.Fatal(err)
	}
	x.Hold(path[0].Node, h, runtrie.Positions(0, 3))
	for range 3 {
		if _, err := x.Grow(nil, 0, 0, long); !errors.Is(err, runtrie.ErrFull) {
			t.Fatalf("got %v, want %v", err, runtrie.ErrFull)
		}
		x.Reclaim()
		if n, held := x.Nodes(), x.Positions(path[0].Node, h); n != 1 || held != runtrie.Positions(0, 3) {
			t.Fatalf("%d nodes, %v held", n, held)
		}
	}
	if path, err = x.Grow(path[:0], 0, 0, long[:4*runtrie.Run]); err != nil || len(path) != 4 {
		t.Errorf("what fits: %d nodes, %v", len(path), err)
	}
	for _, s := range path {
		x.Hold(s.Node, h, runtrie.Positions(s.From, s.To))
	}
	if err := check(x); err != nil {
		t.Error(err)
	}
}
