package sim_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/sim"
)

func TestCacheStoresFullBlocksOnly(t *testing.T) {
	c := sim.NewCacheProbe(4, 8)
	h, cached := c.Open("", tokens(1, 11))
	if cached != 0 {
		t.Fatalf("cached %d blocks in an empty cache", cached)
	}
	events := c.Fill(h, 11)
	if len(events) != 1 || len(events[0].Hashes) != 2 || events[0].Parent != "" || len(events[0].Tokens) != 8*4 {
		t.Fatalf("events of 11 tokens in blocks of 4: %+v", events)
	}
	if more := c.Fill(h, 11); more != nil {
		t.Fatalf("second fill changed something: %+v", more)
	}
}

func TestCacheStoreNamesTheBlockBeforeAsParent(t *testing.T) {
	c := sim.NewCacheProbe(4, 8)
	h, _ := c.Open("", tokens(1, 12))
	first := c.Fill(h, 4)
	rest := c.Fill(h, 12)
	if len(rest) != 1 || rest[0].Parent != first[0].Hashes[0] || len(rest[0].Hashes) != 2 {
		t.Fatalf("first %+v, rest %+v", first, rest)
	}
}

func TestCacheAdapterDoesNotShareWithBase(t *testing.T) {
	c := sim.NewCacheProbe(4, 8)
	base, _ := c.Open("", tokens(1, 4))
	stored := c.Fill(base, 4)
	other, cached := c.Open("sql", tokens(1, 4))
	if cached != 0 {
		t.Fatal("the adapter found the base model's block")
	}
	under := c.Fill(other, 4)
	if under[0].Hashes[0] == stored[0].Hashes[0] || under[0].Adapter != "sql" {
		t.Fatalf("base %+v, adapter %+v", stored, under)
	}
}

func TestCacheEvictsTheTailOfTheOldestFirst(t *testing.T) {
	c := sim.NewCacheProbe(4, 3)
	old, _ := c.Open("", tokens(1, 12))
	stored := c.Fill(old, 12)[0].Hashes
	c.Release(old)
	h, _ := c.Open("", tokens(100, 4))
	events := c.Fill(h, 4)
	if len(events) != 2 || events[0].Kind != "BlockRemoved" || events[0].Hashes[0] != stored[2] || events[1].Kind != "BlockStored" {
		t.Fatalf("stored %v, then %+v", stored, events)
	}
}

func TestCacheKeepsHeldBlocksAndCachesNoMore(t *testing.T) {
	c := sim.NewCacheProbe(4, 2)
	a, _ := c.Open("", tokens(1, 8))
	c.Fill(a, 8)
	before := c.Hashes()
	b, _ := c.Open("", tokens(100, 8))
	if events := c.Fill(b, 8); events != nil {
		t.Fatalf("stored over held blocks: %+v", events)
	}
	c.Release(a)
	if events := c.Fill(b, 8); events != nil {
		t.Fatalf("a chain with a hole was continued: %+v", events)
	}
	if diff := cmp.Diff(before, c.Hashes()); diff != "" {
		t.Errorf("held blocks changed (-before +after):\n%s", diff)
	}
}

func TestCacheClearVoidsRunningChains(t *testing.T) {
	c := sim.NewCacheProbe(4, 4)
	h, _ := c.Open("", tokens(1, 8))
	c.Fill(h, 4)
	c.Clear()
	if events := c.Fill(h, 8); events != nil {
		t.Fatalf("a chain from before the clear stored %+v", events)
	}
	c.Release(h)
	if got := c.Hashes(); len(got) != 0 || c.Usage() != 0 {
		t.Fatalf("after a clear: %v, usage %v", got, c.Usage())
	}
}

// naiveCache is the model: a list of blocks in the order in which they became
// free, with everything counted anew at each step.
type naiveCache struct {
	size, capacity int
	hash           map[string]string // path → hash as the cache told it
	holders        map[string]int
	freed          []string // oldest first
}

type naiveChain struct {
	paths  []string
	want   []string // all block paths of the sequence
	capped bool
}

func (n *naiveCache) take(ch *naiveChain, path string) {
	n.holders[path]++
	n.freed = slices.DeleteFunc(n.freed, func(p string) bool { return p == path })
	ch.paths = append(ch.paths, path)
}

func (n *naiveCache) open(want []string) *naiveChain {
	ch := &naiveChain{want: want}
	for _, p := range want {
		if _, ok := n.holders[p]; !ok {
			break
		}
		n.take(ch, p)
	}
	return ch
}

func (n *naiveCache) fill(ch *naiveChain, blocks int) (removed, stored []string) {
	for len(ch.paths) < blocks && !ch.capped {
		p := ch.want[len(ch.paths)]
		if _, ok := n.holders[p]; ok {
			n.take(ch, p)
			continue
		}
		if len(n.holders) == n.capacity {
			if len(n.freed) == 0 {
				ch.capped = true
				break
			}
			removed = append(removed, n.freed[0])
			delete(n.holders, n.freed[0])
			n.freed = n.freed[1:]
		}
		stored = append(stored, p)
		n.holders[p] = 0
		n.take(ch, p)
	}
	return removed, stored
}

func (n *naiveCache) release(ch *naiveChain) {
	for _, p := range slices.Backward(ch.paths) {
		n.holders[p]--
		if n.holders[p] == 0 {
			n.freed = append(n.freed, p)
		}
	}
}

func TestCacheEqualsNaiveModelUnderRandomOperations(t *testing.T) {
	for seed := range uint64(200) {
		runRandomOperations(t, seed)
	}
}

func runRandomOperations(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	size, capacity := 1+rng.IntN(3), 2+rng.IntN(12)
	c := sim.NewCacheProbe(size, capacity)
	m := &naiveCache{size: size, capacity: capacity, hash: map[string]string{}, holders: map[string]int{}}
	type pair struct {
		h      *sim.Held
		n      *naiveChain
		tokens int
	}
	var running []pair
	var script []string
	step := 0
	where := func() string { return fmt.Sprintf("seed %d step %d %v", seed, step, script) }
	for step = range 120 {
		if len(running) < 4 && rng.IntN(2) == 0 {
			seq := randomSequence(rng)
			adapter := []string{"", "", "lora"}[rng.IntN(3)]
			h, cached := c.Open(adapter, seq)
			n := m.open(blockPaths(adapter, seq, size))
			script = append(script, fmt.Sprintf("open %q %v", adapter, seq))
			if cached != len(n.paths) {
				t.Fatalf("%s: cached %d, model %d", where(), cached, len(n.paths))
			}
			running = append(running, pair{h, n, len(seq)})
		}
		if len(running) == 0 {
			continue
		}
		i := rng.IntN(len(running))
		p := running[i]
		if rng.IntN(3) == 0 {
			script = append(script, fmt.Sprintf("release %d", i))
			c.Release(p.h)
			m.release(p.n)
			running = slices.Delete(running, i, i+1)
		} else {
			computed := rng.IntN(p.tokens + 1)
			script = append(script, fmt.Sprintf("fill %d %d", i, computed))
			removed, stored := m.fill(p.n, computed/size)
			checkFill(t, m, c.Fill(p.h, computed), removed, stored, where)
		}
		checkContent(t, m, c, where)
	}
}

func checkFill(t *testing.T, m *naiveCache, events []sim.ProbeEvent, removed, stored []string, where func() string) {
	t.Helper()
	var gotRemoved, gotStored []string
	for _, e := range events {
		if e.Kind == "BlockRemoved" {
			gotRemoved = append(gotRemoved, e.Hashes...)
			continue
		}
		if len(gotStored) > 0 {
			t.Fatalf("%s: two store events", where())
		}
		gotStored = append(gotStored, e.Hashes...)
	}
	if len(gotStored) != len(stored) {
		t.Fatalf("%s: stored %d blocks, model %d", where(), len(gotStored), len(stored))
	}
	var wantRemoved []string
	for _, p := range removed {
		wantRemoved = append(wantRemoved, m.hash[p])
	}
	for i, p := range stored {
		if old, ok := m.hash[p]; ok && old != gotStored[i] {
			t.Fatalf("%s: one path has two hashes", where())
		}
		m.hash[p] = gotStored[i]
	}
	if diff := cmp.Diff(wantRemoved, gotRemoved); diff != "" {
		t.Fatalf("%s: removals differ (-model +cache):\n%s", where(), diff)
	}
}

func checkContent(t *testing.T, m *naiveCache, c *sim.CacheProbe, where func() string) {
	t.Helper()
	want := []string{}
	for p := range m.holders {
		want = append(want, m.hash[p])
	}
	slices.SortFunc(want, byNumber)
	if diff := cmp.Diff(want, c.Hashes()); diff != "" {
		t.Fatalf("%s: content differs (-model +cache):\n%s", where(), diff)
	}
	held := float64(len(m.holders)-len(m.freed)) / float64(m.capacity)
	if held != c.Usage() {
		t.Fatalf("%s: usage %v, model %v", where(), c.Usage(), held)
	}
}

// randomSequence draws from few tokens, so that prefixes are shared often.
func randomSequence(rng *rand.Rand) []uint32 {
	seq := make([]uint32, 1+rng.IntN(20))
	for i := range seq {
		seq[i] = uint32(rng.IntN(2))
		if rng.IntN(3) > 0 {
			seq[i] = 7
		}
	}
	return seq
}

func blockPaths(adapter string, seq []uint32, size int) []string {
	var paths []string
	raw := adapter + "|"
	for i, tok := range seq {
		raw += string(binary.LittleEndian.AppendUint32(nil, tok))
		if (i+1)%size == 0 {
			paths = append(paths, raw)
		}
	}
	return paths
}

// tokens returns n consecutive ids from first on.
func tokens(first, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(first + i)
	}
	return out
}

// byNumber compares decimals without leading zeros.
func byNumber(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
