package exact

import (
	"slices"

	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/kvcache"
)

// maxRun bounds the blocks of one change.
const maxRun = 512

// place is a block of a copied path, by its number; root is what a prompt begins behind.
type place int32

const root place = -1

// holding is one entry of a worker's table.
type holding struct {
	hash kvcache.EngineHash
	at   place
}

// paths are the blocks that a worker has and all that are before them, by place.
type paths struct {
	blocks []kvcache.BlockHash
	above  []place
	salts  []uint64 // by place, of the chain; nil where no chain has one
}

func (p *paths) salt(at place) uint64 {
	if p.salts == nil {
		return 0
	}
	return p.salts[at]
}

// unroll turns the tables of one worker into changes that make them.
type unroll struct {
	paths  *paths
	tiers  *[kvcache.Tiers][]holding
	opaque *[kvcache.Tiers][]kvcache.EngineHash
	names  [kvcache.Tiers][]int32       // by place, which of the tier's holdings names it, plus 1; 0 for none
	used   map[kvcache.EngineHash]uint8 // by hash, the tiers that have it; nil until it is needed

	// of the tier that is being told
	tier  kvcache.Tier
	told  []kvcache.EngineHash // by place, under which hash it was stored
	done  []bool               // by place, whether it was
	fill  []kvcache.EngineHash // stored only to be removed again
	climb []place
	run   []indexer.Block
	yield func(indexer.Change) bool
}

func newUnroll(p *paths, tiers *[kvcache.Tiers][]holding, rest *indexer.Rest) *unroll {
	return &unroll{paths: p, tiers: tiers, opaque: &rest.Opaque}
}

// all tells the changes until yield has enough. The tiers go fastest first, so that a block can name its parent on a
// faster one.
func (u *unroll) all(yield func(indexer.Change) bool) {
	u.yield = yield
	for t := range u.tiers {
		if len(u.tiers[t]) > 0 && !u.one(kvcache.Tier(t)) {
			return
		}
	}
}

// one tells one tier.
func (u *unroll) one(t kvcache.Tier) bool {
	list := u.tiers[t]
	slices.SortFunc(list, func(a, b holding) int { return a.hash.Compare(b.hash) })
	names := make([]int32, len(u.paths.blocks))
	inner := make([]bool, len(u.paths.blocks))
	var more []holding // further hashes of a block
	for i, e := range list {
		if names[e.at] != 0 {
			more = append(more, e)
			continue
		}
		names[e.at] = int32(i + 1)
		if above := u.paths.above[e.at]; above != root {
			inner[above] = true
		}
	}
	u.names[t], u.tier = names, t
	u.told, u.done, u.fill = make([]kvcache.EngineHash, len(u.paths.blocks)), make([]bool, len(u.paths.blocks)), nil
	// The ends first, for long changes; then those that a longer path went by, since
	// it could begin at what a faster tier has of them.
	for _, ends := range []bool{true, false} {
		for _, e := range list {
			if inner[e.at] != ends && !u.path(e.at) {
				return false
			}
		}
	}
	for _, e := range more {
		if !u.store(u.paths.above[e.at], []indexer.Block{{Hash: e.hash, Local: u.paths.blocks[e.at]}}, u.paths.salt(e.at)) {
			return false
		}
	}
	for part := range slices.Chunk(u.fill, maxRun) {
		if !u.yield(indexer.Change{Tier: t, Removed: part}) {
			return false
		}
	}
	return true
}

// path tells a block with all that it needs before it.
func (u *unroll) path(at place) bool {
	if u.done[at] {
		return true
	}
	u.climb = append(u.climb[:0], at)
	above := u.paths.above[at]
	for above != root {
		if _, named := u.name(above); named {
			break
		}
		u.climb = append(u.climb, above)
		above = u.paths.above[above]
	}
	slices.Reverse(u.climb)
	for part := range slices.Chunk(u.climb, maxRun) {
		u.run = u.run[:0]
		for _, n := range part {
			u.run = append(u.run, indexer.Block{Hash: u.give(n), Local: u.paths.blocks[n]})
		}
		if !u.store(above, u.run, u.paths.salt(at)) {
			return false
		}
		for i, n := range part {
			u.told[n], u.done[n] = u.run[i].Hash, true
		}
		above = part[len(part)-1]
	}
	return true
}

// store tells blocks behind the root or a block that has a name.
func (u *unroll) store(above place, blocks []indexer.Block, salt uint64) bool {
	c := indexer.Change{Tier: u.tier, Blocks: blocks}
	if above == root {
		c.Salt = salt
	} else {
		c.Parent, c.HasParent = u.name(above)
	}
	return u.yield(c)
}

// name returns a hash by which the receiver, who has what was told so far, finds a block.
func (u *unroll) name(at place) (kvcache.EngineHash, bool) {
	if u.done[at] {
		return u.told[at], true
	}
	for t := range u.tier {
		e, ok := u.named(t, at)
		// It is looked up on the block's own tier, then on all from the fastest on.
		if ok && u.uses()[e]&(1<<t-1|1<<u.tier) == 0 {
			return e, true
		}
	}
	return kvcache.EngineHash{}, false
}

// named returns the hash of a block on a tier that was told, or is.
func (u *unroll) named(t kvcache.Tier, at place) (kvcache.EngineHash, bool) {
	names := u.names[t]
	if len(names) == 0 || names[at] == 0 {
		return kvcache.EngineHash{}, false
	}
	return u.tiers[t][names[at]-1].hash, true
}

// give returns the hash under which a block is stored: the engine's, or, where the engine has none, one that the worker
// does not use.
func (u *unroll) give(n place) kvcache.EngineHash {
	if e, ok := u.named(u.tier, n); ok {
		return e
	}
	used := u.uses()
	e := kvcache.NumberHash(uint64(u.paths.blocks[n]))
	for i := uint64(1); used[e] != 0; i++ {
		e = kvcache.NumberHash(uint64(u.paths.blocks[n]) + i)
	}
	used[e] = 1 << kvcache.Tiers
	u.fill = append(u.fill, e)
	return e
}

// uses returns which hashes the worker uses.
func (u *unroll) uses() map[kvcache.EngineHash]uint8 {
	if u.used != nil {
		return u.used
	}
	u.used = map[kvcache.EngineHash]uint8{}
	for t := range u.tiers {
		for _, e := range u.tiers[t] {
			u.used[e.hash] |= 1 << t
		}
		for _, e := range u.opaque[t] {
			u.used[e] |= 1 << kvcache.Tiers
		}
	}
	return u.used
}
