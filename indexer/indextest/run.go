package indextest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/kvcache"
)

// blockSize of the random runs; small, so that many tokens lists share blocks.
const blockSize = 2

// Evictor is an index that gives blocks up when it is told to: such as have about so many bytes. It tells each.
type Evictor interface {
	Evict(bytes int64, gone func(fleet.Worker, kvcache.Tier, kvcache.EngineHash))
}

// Run compares the index that newIndex makes with the plain model, by random operations: holes, repeated and moved
// hashes, tiers, groups, salts, refused events, cleared and removed workers, blocks that are given up if the index is an
// Evictor, and indexes that are carried over. It takes about a second.
func Run(t *testing.T, newIndex func(blockSize int) indexer.Indexer) {
	t.Helper()
	for mode := range modes {
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("%s/%d", modes[mode], seed), func(t *testing.T) {
				g := newGenerator(seed, mode)
				r := newRunner(newIndex)
				for range 400 {
					o := g.next()
					if d := r.step(o); d != "" {
						t.Fatalf("step %d: %s\nscript:\n%s", len(r.done), d, script(r.done))
					}
				}
			})
		}
	}
}

// Replay runs a script that a failed Run printed.
func Replay(t *testing.T, newIndex func(blockSize int) indexer.Indexer, text string) {
	t.Helper()
	ops, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	r := newRunner(newIndex)
	for i, o := range ops {
		if d := r.step(o); d != "" {
			t.Fatalf("step %d: %s", i+1, d)
		}
	}
}

// runner applies steps to an index and to the model and compares them.
type runner struct {
	fresh   func(blockSize int) indexer.Indexer
	index   indexer.Indexer
	model   *model
	done    []op
	workers []fleet.Worker
}

func newRunner(newIndex func(blockSize int) indexer.Indexer) *runner {
	return &runner{
		fresh:   newIndex,
		index:   newIndex(blockSize),
		model:   &model{blockSize: blockSize, workers: map[fleet.Worker]*residency{}},
		workers: []fleet.Worker{{ID: 99}},
	}
}

// step applies one step and returns how index and model differ afterwards, or "".
func (r *runner) step(o op) string {
	r.done = append(r.done, o)
	w := o.who()
	if !slices.Contains(r.workers, w) {
		r.workers = append(r.workers, w)
	}
	switch o.Do {
	case "clear":
		r.index.Clear(w)
		if r.model.workers[w] != nil {
			r.model.workers[w] = newResidency()
		}
	case "remove":
		r.index.Remove(w)
		delete(r.model.workers, w)
	case "find":
		return r.compareFind(o)
	case "carry":
		return r.carry()
	case "evict":
		return r.evict(o.Bytes)
	default:
		e := o.event()
		got := r.index.Apply(w, []kvcache.Event{e})
		if d := cmp.Diff(r.model.apply(w, e), got); d != "" {
			return "result (-model +index): " + d
		}
	}
	return r.compareBlocks(w)
}

// carry goes on with an index that took the snapshots of all workers over.
func (r *runner) carry() string {
	from, to := r.index, r.fresh(blockSize)
	for _, w := range from.Workers() {
		s, ok := from.Snapshot(w)
		if !ok {
			return fmt.Sprintf("worker %s has no snapshot", w)
		}
		from.Clear(w) // the snapshot does not depend on it
		if lost := to.Restore(w, s.Rest, s.Changes); lost > 0 {
			return fmt.Sprintf("worker %s: %d blocks lost their parents", w, lost)
		}
	}
	r.index = to
	for _, w := range r.workers {
		if d := r.compareBlocks(w); d != "" {
			return d
		}
	}
	return ""
}

// evict has the index give blocks up, and the model those that it tells.
func (r *runner) evict(bytes int64) string {
	e, ok := r.index.(Evictor)
	if !ok {
		return ""
	}
	e.Evict(bytes, r.model.evict)
	for _, w := range r.workers {
		if d := r.compareBlocks(w); d != "" {
			return d
		}
	}
	return ""
}

func (r *runner) compareBlocks(w fleet.Worker) string {
	if d := cmp.Diff(r.model.blocks(w), r.index.Blocks(w)); d != "" {
		return "blocks (-model +index): " + d
	}
	equal := cmp.Comparer(func(a, b kvcache.EngineHash) bool { return a == b })
	if d := cmp.Diff(r.model.hashes(w), r.index.Hashes(w), equal); d != "" {
		return "hashes (-model +index): " + d
	}
	return ""
}

func (r *runner) compareFind(o op) string {
	hash := kvcache.BlockHashes
	if o.Bigram {
		hash = kvcache.BigramBlockHashes
	}
	blocks, err := hash(nil, o.Tokens, blockSize, kvcache.Seed(o.Adapter, o.Salt))
	if err != nil {
		return err.Error()
	}
	got := make([]kvcache.Overlap, len(r.workers))
	for i := range got {
		got[i].Device = 1 << 30 // Find must overwrite it
	}
	r.index.Find(blocks, r.workers, got)
	for i, w := range r.workers {
		if want := r.model.overlap(w, blocks); want != got[i] {
			return fmt.Sprintf("worker %s: index finds %+v, model %+v", w, got[i], want)
		}
	}
	return ""
}

// modes are the ways in which engines name blocks.
var modes = [...]string{"equal hashes", "hashes per worker", "few hashes"}

// generator makes random steps that refer to each other often enough to be interesting.
type generator struct {
	rng   *rand.Rand
	mode  int
	known map[uint64][]uint64 // hashes lately stored, by worker
}

func newGenerator(seed uint64, mode int) *generator {
	return &generator{rng: rand.New(rand.NewPCG(seed, uint64(mode))), mode: mode, known: map[uint64][]uint64{}}
}

func (g *generator) chance(percent int) bool { return g.rng.IntN(100) < percent }

func (g *generator) next() op {
	o := op{Worker: g.rng.Uint64N(5), Rank: uint32(g.rng.IntN(2))}
	switch n := g.rng.IntN(100); {
	case n < 45:
		g.store(&o)
	case n < 65:
		o.Do = "removed"
		g.common(&o)
		for range 1 + g.rng.IntN(3) {
			o.Hashes = append(o.Hashes, g.pick(o.Worker))
		}
	case n < 67:
		o.Do = []string{"cleared", "clear", "remove"}[g.rng.IntN(3)]
	case n < 68:
		o = op{Do: "carry"}
	case n < 70:
		o = op{Do: "evict", Bytes: []int64{1, 500, 2000, 1 << 30}[g.rng.IntN(4)]}
	default:
		o = op{Do: "find", Tokens: g.tokens(1 + g.rng.IntN(12)), Bigram: g.chance(5)}
		g.scope(&o)
	}
	return o
}

func (g *generator) common(o *op) {
	if g.chance(25) {
		o.Tier = kvcache.Tier(g.rng.IntN(kvcache.Tiers))
	}
	if g.chance(5) {
		o.Group = int32(g.rng.IntN(3))
	}
	o.Raw = g.mode == 1 && o.Worker%2 == 1
}

func (g *generator) scope(o *op) {
	if g.chance(10) {
		o.Adapter = "ad"
	}
	if g.chance(10) {
		o.Salt = []string{"s", "t"}[g.rng.IntN(2)]
	}
}

func (g *generator) tokens(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(g.rng.IntN(2))
	}
	return ids
}

func (g *generator) store(o *op) {
	o.Do, o.BlockSize = "stored", blockSize
	g.common(o)
	g.scope(o)
	if g.chance(8) {
		o.Attention = kvcache.Attention(g.rng.IntN(4))
	}
	o.Bigram = g.chance(5)
	blocks := 1 + g.rng.IntN(4)
	o.Tokens = g.tokens(blocks * blockSize)
	if o.Bigram {
		o.Tokens = append(o.Tokens, 1)
	}
	if g.chance(65) {
		p := g.pick(o.Worker)
		o.Parent = &p
	}
	for i := range blocks {
		h := g.name(o, i)
		o.Hashes = append(o.Hashes, h)
	}
	g.spoil(o)
	known := slices.Concat(g.known[o.Worker], o.Hashes)
	g.known[o.Worker] = known[max(0, len(known)-24):]
}

// spoil makes some stores unlike a plain one.
func (g *generator) spoil(o *op) {
	switch n := g.rng.IntN(100); {
	case n < 3:
		o.Tokens, o.BlockSize = nil, 0
		o.Hashes = []uint64{g.pick(o.Worker)}
	case n < 5:
		o.Tokens = o.Tokens[:len(o.Tokens)-1]
	case n < 6:
		o.BlockSize = 4
	case n < 8:
		o.Tokens, o.Hashes, o.BlockSize, o.Bigram = o.Tokens[:1], o.Hashes[:1], 1, false
	case n < 9:
		o.BlockSize = 0
	case n < 12:
		at := g.rng.IntN(len(o.Hashes) + 1)
		o.Opaque = &at
	}
}

// name gives block i of a store its engine hash.
func (g *generator) name(o *op, i int) uint64 {
	if g.mode == 2 {
		return g.rng.Uint64N(40)
	}
	h := uint64(1469598103934665603)
	mix := func(n uint64) { h = (h ^ n) * 1099511628211 }
	if o.Parent != nil {
		mix(*o.Parent)
	}
	if g.mode == 1 {
		mix(o.Worker + 1)
	}
	mix(uint64(len(o.Adapter))<<8 + uint64(len(o.Salt)))
	for _, id := range o.Tokens[:(i+1)*blockSize] {
		mix(uint64(id) + 2)
	}
	return h
}

// pick returns a hash that the worker probably stored.
func (g *generator) pick(worker uint64) uint64 {
	if list := g.known[worker]; len(list) > 0 && !g.chance(5) {
		return list[g.rng.IntN(len(list))]
	}
	return g.rng.Uint64N(40)
}
