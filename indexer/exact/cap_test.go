//go:build !indexcheck && !race

package exact_test

import (
	"math/rand/v2"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/kvcache"
)

// path is a block with all before it.
type path uint64

// capped is a capped index beside a plain model that loses what the index says it gave up.
type capped struct {
	t     *testing.T
	x     *exact.Index
	most  int64
	rnd   *rand.Rand
	held  map[fleet.Worker]map[path]bool
	above map[path]path
	gone  uint64
}

func newCapped(t *testing.T, most int64) *capped {
	t.Helper()
	c := &capped{t: t, x: exact.NewCapped(1, most), most: most, rnd: rand.New(rand.NewPCG(5, 5)), held: map[fleet.Worker]map[path]bool{}, above: map[path]path{}}
	c.x.Observe(func(w fleet.Worker, _ kvcache.Tier, e kvcache.EngineHash) {
		n, _ := e.Number()
		if !c.held[w][path(n)] {
			t.Errorf("worker %s lost %d, which it did not have", w, n)
		}
		delete(c.held[w], path(n))
		c.gone++
	})
	return c
}

// paths are those of a prompt's tokens, of which each is a block.
func (c *capped) paths(tokens []uint32) []path {
	all, last := make([]path, len(tokens)), path(1)
	for i, id := range tokens {
		next := (last^path(id))*0x9e3779b97f4a7c15 ^ last>>29
		c.above[next] = last
		all[i], last = next, next
	}
	return all
}

// store has a worker store what it lacks of a prompt, some blocks an event, as an engine does that knows what the
// index knows.
func (c *capped) store(w fleet.Worker, tokens []uint32, event int) {
	c.t.Helper()
	all, held := c.paths(tokens), c.held[w]
	if held == nil {
		held = map[path]bool{}
		c.held[w] = held
	}
	from := 0
	for from < len(all) && held[all[from]] {
		from++
	}
	for from < len(all) {
		to := min(from+event, len(all))
		e := kvcache.Event{Kind: kvcache.Stored, BlockSize: 1, Tokens: tokens[from:to]}
		for _, p := range all[from:to] {
			e.Hashes = append(e.Hashes, kvcache.NumberHash(uint64(p)))
		}
		if from > 0 {
			e.Parent, e.HasParent = kvcache.NumberHash(uint64(all[from-1])), true
		}
		res := c.x.Apply(w, []kvcache.Event{e})
		if got := c.x.Bytes(); got > c.most {
			c.t.Fatalf("%d bytes of at most %d", got, c.most)
		}
		if res.Degraded {
			c.t.Fatalf("worker %s is not trusted: %v", w, res.Drops.Map())
		}
		known := from == 0 || held[all[from-1]]
		if known != (res.Stored == to-from) || known == (res.Drops[kvcache.DropEvictedParent] > 0) {
			c.t.Fatalf("stored %d of %d, dropped %v; the parent is known: %v", res.Stored, to-from, res.Drops.Map(), known)
		}
		if !known {
			return
		}
		for _, p := range all[from:to] {
			held[p] = true
		}
		from = to
	}
}

// find compares what is found of a prompt at all workers with the model, and returns the longest.
func (c *capped) find(tokens []uint32, workers []fleet.Worker) (longest int) {
	c.t.Helper()
	blocks, err := kvcache.BlockHashes(nil, tokens, 1, kvcache.Seed("", ""))
	if err != nil {
		c.t.Fatal(err)
	}
	out := make([]kvcache.Overlap, len(workers))
	c.x.Find(blocks, workers, out)
	all := c.paths(tokens)
	for i, w := range workers {
		want := 0
		for want < len(all) && c.held[w][all[want]] {
			want++
		}
		if int(out[i].Device) != want {
			c.t.Fatalf("worker %s is found with %d blocks, want %d", w, out[i].Device, want)
		}
		longest = max(longest, want)
	}
	return longest
}

// A capped index that gets far more than it has room for stays at or below its cap, knows exactly what it did not say to
// have given up, keeps what is asked for, and leaves no worker with blocks that no prompt can reach.
func TestACappedIndexStaysBelowItsCapAndKeepsWhatIsAskedFor(t *testing.T) {
	for name, s := range map[string]struct {
		workers, depth, event, prompts int
		most                           int64
	}{
		"short prompts":        {workers: 16, depth: 8, event: 8, prompts: 30_000, most: 4 << 20},
		"one block an event":   {workers: 8, depth: 40, event: 1, prompts: 6000, most: 3 << 20},
		"depth 512":            {workers: 24, depth: 512, event: 64, prompts: 1000, most: 6 << 20},
		"one worker":           {workers: 1, depth: 300, event: 300, prompts: 3000, most: 4 << 20},
		"depth 4096":           {workers: 4, depth: 4096, event: 512, prompts: 150, most: 8 << 20},
		"as small as it works": {workers: 2, depth: 100, event: 20, prompts: 2000, most: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCapped(t, s.most)
			var workers []fleet.Worker
			for i := range s.workers {
				workers = append(workers, fleet.Worker{ID: fleet.WorkerID(i + 1)})
			}
			prompt := func(n int) []uint32 {
				tokens := make([]uint32, s.depth)
				for i := range tokens {
					tokens[i] = uint32(n)<<12 | uint32(i)
					if i < s.depth/2 {
						tokens[i] = uint32(n%7)<<12 | uint32(i) | 1<<31
					}
				}
				return tokens
			}
			hot := prompt(0)
			c.store(workers[0], hot, s.event)
			for n := 1; n < s.prompts; n++ {
				c.store(workers[c.rnd.IntN(len(workers))], prompt(n), s.event)
				if n%4 == 0 && c.find(hot, workers[:1]) != len(hot) {
					t.Fatalf("prompt %d: not all blocks are found that are always asked for", n)
				}
				if n%20 == 0 { // of any age, so that this does not keep it
					c.find(prompt(1+c.rnd.IntN(s.prompts)), workers)
				}
			}
			if c.gone == 0 || c.x.Evicted() != c.gone {
				t.Errorf("%d blocks were evicted, %d were told", c.x.Evicted(), c.gone)
			}
			held := 0
			for w, paths := range c.held {
				held += len(paths)
				if n := c.x.Blocks(w)[kvcache.Device]; n != len(paths) {
					t.Errorf("worker %s has %d blocks, want %d", w, n, len(paths))
				}
				for p := range paths {
					if up := c.above[p]; up != 1 && !paths[up] {
						t.Fatalf("worker %s has a block that is out of reach", w)
					}
				}
			}
			t.Logf("%d bytes of %d, %d blocks held (%.1f bytes each), %d evicted", c.x.Bytes(), s.most, held, float64(c.x.Bytes())/float64(held), c.gone)
			if c.x.Bytes() < s.most*3/5 {
				t.Errorf("%d bytes of %d are used", c.x.Bytes(), s.most)
			}
		})
	}
}
