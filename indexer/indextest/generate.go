package indextest

import (
	"math/rand/v2"
	"slices"

	"github.com/routerd/routerd/kvcache"
)

// modes are the ways in which engines name blocks.
var modes = [...]string{"equal hashes", "hashes per worker", "few hashes"}

// generator makes random steps that refer to each other often enough to be interesting.
type generator struct {
	rng     *rand.Rand
	mode    int
	of      *subject
	known   map[uint64][]uint64 // hashes lately stored, by worker
	prompts map[uint64][]op     // what was lately recorded, by worker
	soon    []op                // the next steps
}

func newGenerator(seed uint64, mode int, of *subject) *generator {
	return &generator{
		rng: rand.New(rand.NewPCG(seed, uint64(mode))), mode: mode, of: of,
		known: map[uint64][]uint64{}, prompts: map[uint64][]op{},
	}
}

func (g *generator) chance(percent int) bool { return g.rng.IntN(100) < percent }

// next returns the next step, of those that the index does.
func (g *generator) next() op {
	if len(g.soon) > 0 {
		o := g.soon[0]
		g.soon = g.soon[1:]
		return o
	}
	for {
		if o := g.any(); g.of.does(o.Do) {
			return o
		}
	}
}

func (g *generator) any() op {
	o := op{Worker: g.rng.Uint64N(4), Rank: uint32(g.rng.IntN(2))}
	switch n := g.rng.IntN(135); {
	case n < 45:
		if list := g.prompts[o.Worker]; g.of.does("stored") && len(list) > 0 && g.chance(35) {
			return g.serve(list[g.rng.IntN(len(list))])
		}
		g.store(&o)
	case n < 65:
		o.Do = "removed"
		g.common(&o)
		for range 1 + g.rng.IntN(3) {
			o.Hashes = append(o.Hashes, g.pick(o.Worker))
		}
	case n < 67:
		o.Do = []string{"cleared", "clear", "remove", "forget"}[g.rng.IntN(4)]
	case n < 68:
		o = op{Do: "carry"}
	case n < 70:
		o = op{Do: "evict", Bytes: []int64{1, 500, 2000, 1 << 30}[g.rng.IntN(4)]}
	case n < 100:
		o = op{Do: "find"}
		g.prompt(&o)
	case n < 125:
		o.Do = "record"
		g.prompt(&o)
		list := slices.Concat(g.prompts[o.Worker], []op{o})
		g.prompts[o.Worker] = list[max(0, len(list)-4):]
	default:
		o = op{Do: "pass", Ticks: 1 + g.rng.IntN(12)}
		if g.chance(5) {
			o.Ticks = 100
		}
	}
	return o
}

// prompt makes a random prompt, a long one now and then.
func (g *generator) prompt(o *op) {
	o.Tokens, o.Bigram = g.tokens(1+g.rng.IntN(12)), g.chance(5)
	if g.chance(2) {
		for len(o.Tokens) < 280*blockSize {
			o.Tokens = append(o.Tokens, o.Tokens[len(o.Tokens)%3%len(o.Tokens)])
		}
		o.Tokens = o.Tokens[:len(o.Tokens)-g.rng.IntN(40)]
	}
	g.scope(o)
	g.items(o)
}

// items puts images into some blocks, one of them often enough for others to meet it.
func (g *generator) items(o *op) {
	if !g.chance(25) {
		return
	}
	o.Items = make([][]uint64, 1+g.rng.IntN(3))
	o.Items[len(o.Items)-1] = [][]uint64{{7}, {7}, {8}, {8, 7}}[g.rng.IntN(4)]
}

// serve has an engine store a prompt that was recorded, as a whole or in two parts, between which something may go.
func (g *generator) serve(p op) op {
	o := p
	o.Do, o.BlockSize, o.Raw = "stored", blockSize, g.mode == 1 && p.Worker%2 == 1
	spare := 0
	if o.Bigram {
		spare = 1
	}
	n := (len(p.Tokens) - spare) / blockSize
	if n < 1 {
		return g.any()
	}
	o.Tokens = p.Tokens[:n*blockSize+spare]
	for i := range n {
		o.Hashes = append(o.Hashes, g.name(&o, i))
	}
	g.knows(o.Worker, o.Hashes)
	if g.chance(40) && n > 1 {
		k := 1 + g.rng.IntN(n-1)
		rest := o
		rest.Hashes, rest.Tokens, rest.Parent = o.Hashes[k:], o.Tokens[k*blockSize:], &o.Hashes[k-1]
		o.Hashes, o.Tokens = o.Hashes[:k], o.Tokens[:k*blockSize+spare]
		if k < len(o.Items) {
			o.Items, rest.Items = o.Items[:k], o.Items[k:]
		} else {
			rest.Items = nil
		}
		if g.chance(30) {
			g.soon = append(g.soon, op{Do: "removed", Worker: o.Worker, Rank: o.Rank, Raw: o.Raw, Hashes: o.Hashes[:1]})
		}
		g.soon = append(g.soon, rest)
		return o
	}
	if g.chance(30) {
		g.soon = append(g.soon, op{Do: "removed", Worker: o.Worker, Rank: o.Rank, Raw: o.Raw, Hashes: o.Hashes[n-1:]})
	}
	return o
}

// knows notes hashes that were stored.
func (g *generator) knows(worker uint64, hashes []uint64) {
	known := slices.Concat(g.known[worker], hashes)
	g.known[worker] = known[max(0, len(known)-24):]
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
	g.items(o)
	for i := range blocks {
		h := g.name(o, i)
		o.Hashes = append(o.Hashes, h)
	}
	g.spoil(o)
	g.knows(o.Worker, o.Hashes)
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
	for k, items := range o.Items[:min(i+1, len(o.Items))] {
		for _, item := range items {
			mix(uint64(k)<<8 + item)
		}
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
