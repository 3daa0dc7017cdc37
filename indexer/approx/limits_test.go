package approx_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/approx"
	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

var w1, w2 = fleet.Worker{ID: 1}, fleet.Worker{ID: 2, Rank: 3}

// prompt returns n blocks that no prompt of another number has.
func prompt(number, n int) []kvcache.BlockHash {
	blocks := make([]kvcache.BlockHash, n)
	for i := range blocks {
		blocks[i] = kvcache.BlockHash(uint64(number)<<32|uint64(i)) * 0x9e3779b97f4a7c15
	}
	return blocks
}

// reach is how much of a prompt a worker is found with.
func reach(x *approx.Index, w fleet.Worker, blocks []kvcache.BlockHash) int {
	var out [1]kvcache.Overlap
	x.Find(blocks, []fleet.Worker{w}, out[:])
	return int(out[0].Device)
}

func held(x *approx.Index, w fleet.Worker) int { return x.Blocks(w)[kvcache.Device] }

func TestTheOldestGoFirstAndOfOnePromptTheTail(t *testing.T) {
	x := index(t, approx.Config{MaxBlocks: 300})
	a, b := prompt(1, 200), slices.Concat(prompt(1, 200)[:150], prompt(2, 50))
	x.Record(w1, a)
	x.Record(w1, b) // renews 150 blocks of a
	x.Record(w2, prompt(3, 80))
	for _, c := range []struct {
		what string
		got  int
		want int
	}{
		{"the first prompt", reach(x, w1, a), 170},
		{"the one that renewed its beginning", reach(x, w1, b), 200},
		{"another worker's", reach(x, w2, prompt(3, 80)), 80},
		{"blocks", held(x, w1) + held(x, w2), 300},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.got, c.want)
		}
	}
	x.Record(w2, prompt(4, 1000))
	if got := [...]int{held(x, w1), reach(x, w2, prompt(3, 80)), reach(x, w2, prompt(4, 1000))}; got != [...]int{0, 0, 300} {
		t.Errorf("after a prompt that is longer than the limit: %v", got)
	}
}

// Where the trie has no room, the oldest make it.
func TestAnIndexWithoutNodesMakesRoom(t *testing.T) {
	x, err := approx.NewSmall(approx.Config{}, 600)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		x.Record(w1, prompt(i, 2))
		if n := reach(x, w1, prompt(i, 2)); n != 2 {
			t.Fatalf("prompt %d: %d blocks", i, n)
		}
	}
	long := prompt(9999, 700*runtrie.Run) // more than fits at all
	x.Record(w1, long)
	if n := reach(x, w1, long); n != 0 {
		t.Errorf("%d blocks of what has no room", n)
	}
	x.Record(w1, prompt(1, 2))
	if n := held(x, w1); n != 2 {
		t.Errorf("%d blocks afterwards", n)
	}
}

func TestConfigsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		cfg  approx.Config
		want fleet.FieldError
	}{
		{approx.Config{TTL: time.Millisecond}, fleet.FieldError{Field: "ttl", Value: "1ms", Allowed: "0, or 10ms to 8760h0m0s"}},
		{approx.Config{TTL: -time.Second}, fleet.FieldError{Field: "ttl", Value: "-1s", Allowed: "0, or 10ms to 8760h0m0s"}},
		{approx.Config{TTL: 1 << 62}, fleet.FieldError{Field: "ttl", Value: "1281023h53m38.427387904s", Allowed: "0, or 10ms to 8760h0m0s"}},
		{approx.Config{MaxBlocks: -1}, fleet.FieldError{Field: "max_blocks", Value: "-1", Allowed: "0 and more"}},
		{approx.Config{MaxBytes: 1000}, fleet.FieldError{Field: "max_bytes", Value: "1000", Allowed: "0, or 1048576 and more"}},
	} {
		_, err := approx.New(c.cfg)
		if field, ok := errors.AsType[*fleet.FieldError](err); !ok || *field != c.want {
			t.Errorf("%+v: %s", c.cfg, cmp.Diff(c.want.Error(), err.Error()))
		}
	}
}
