package exact

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// maxGroups bounds how many cache groups of a worker are remembered as not being the main one.
const maxGroups = 1024

// tier is what a worker has on one tier.
type tier struct {
	table
	own  *runtrie.Holder // of what this tier has; nil while it never had anything
	upTo *runtrie.Holder // of what this or a faster tier has; the same as own on the device
}

// holder is what the index knows of one worker and rank.
type holder struct {
	who fleet.Worker

	// found are the slots, plus 1, that a find asks for by tier: of upTo. 0 is none.
	found [kvcache.Tiers]atomic.Uint32

	mu     sync.Mutex // guards all below
	gone   bool       // removed from the index; look the worker up again
	tiers  [kvcache.Tiers]tier
	opaque opaque
	full   bool // a block of the right size was stored
	// evicted is set when the index gave up blocks that the engine may still hold: what is not known may be one of them.
	evicted bool

	mainKnown bool
	main      int32
	others    map[int32]struct{}

	tip tip
	scratch
	bytes int64 // of memory, as the index knows it

	secret uint64 // odd, of spread
	seed   maphash.Seed

	touched uint32 // only so that what touch reads is not left out
}

// scratch is of one store or removal.
type scratch struct {
	hashes []kvcache.BlockHash
	names  []kvcache.EngineHash
	olds   []slot
	path   []runtrie.Stretch
	had    []runtrie.Mask // by stretch of path, what the tier had of it before
	free   []runtrie.Stretch
	seen   []uint32 // places in a list of hashes, plus 1
}

// tip is the last block of the last store: the next one goes on behind it more often than not.
type tip struct {
	hash kvcache.EngineHash
	tier kvcache.Tier
	at   runtrie.Ref // 0 when the hash no longer means it
}

// slot is where a hash is in a table, and which block it meant.
type slot struct {
	at    runtrie.Ref
	place int
}

func newHolder(w fleet.Worker) *holder {
	return &holder{
		who:    w,
		others: map[int32]struct{}{},
		secret: rand.Uint64() | 1,
		seed:   maphash.MakeSeed(),
	}
}

// forget empties what is known beside the blocks.
func (h *holder) forget() {
	h.opaque = opaque{}
	clear(h.others)
	h.full, h.evicted, h.mainKnown, h.main = false, false, false, 0
}

// find looks a hash up in its own tier, then in all tiers from the fastest on.
func (h *holder) find(own kvcache.Tier, e kvcache.EngineHash) runtrie.Ref {
	if h.tip.at != 0 && h.tip.hash == e && h.tip.tier == own {
		return h.tip.at
	}
	if at, _ := h.tiers[own].get(e); at != 0 {
		return at
	}
	for t := range h.tiers {
		if at, _ := h.tiers[t].get(e); at != 0 {
			return at
		}
	}
	return 0
}

// hold gives positions of a node to a worker on a tier, and returns which it had there.
func (x *Index) hold(h *holder, t kvcache.Tier, s runtrie.Stretch) (had runtrie.Mask) {
	had = x.trie.HoldStretch(s, h.tiers[t].own)
	for u := max(t, kvcache.Host); u < kvcache.Tiers; u++ {
		if up := h.tiers[u].upTo; up != nil {
			x.trie.HoldStretch(s, up)
		}
	}
	return had
}

// drop takes positions of a node from a worker's tier. The tier's own go last, so that
// the node does not go before.
func (x *Index) drop(h *holder, t kvcache.Tier, id uint32, m runtrie.Mask) {
	for u := max(t, kvcache.Host); u < kvcache.Tiers; u++ {
		up := h.tiers[u].upTo
		if up == nil {
			continue
		}
		left := m
		for v := range u + 1 {
			if own := h.tiers[v].own; v != t && own != nil {
				left = left.Minus(x.trie.Positions(id, own))
			}
		}
		x.trie.Drop(id, up, left)
	}
	x.trie.Drop(id, h.tiers[t].own, m)
}

// unknown is the reason for which a block that is not known is left out.
func (h *holder) unknown(reason kvcache.DropReason) kvcache.DropReason {
	if h.evicted {
		return kvcache.DropEvictedBlock
	}
	return reason
}

// release takes one hash's meaning from a worker's tier, at the next flush where it is
// the last one of its block.
func (h *holder) release(t kvcache.Tier, at runtrie.Ref) {
	if at == h.tip.at {
		h.tip = tip{}
	}
	if extra := &h.tiers[t].extra; extra.Len() > 0 {
		switch more := extra.Get(at); {
		case more > 1:
			extra.Put(at, more-1)
			return
		case more == 1:
			extra.Delete(at)
			return
		}
	}
	id, pos := at.Node()
	if n := len(h.free); n > 0 && h.free[n-1].Node == id {
		switch last := &h.free[n-1]; pos {
		case last.To:
			last.To++
			return
		case last.From - 1:
			last.From--
			return
		}
	}
	h.free = append(h.free, runtrie.Stretch{Node: id, From: pos, To: pos + 1})
}

// flush takes what was released on a tier out of the trie, whose lock is held.
func (x *Index) flush(h *holder, t kvcache.Tier) {
	for _, s := range h.free {
		x.drop(h, t, s.Node, runtrie.Positions(s.From, s.To))
	}
	h.free = h.free[:0]
}

// open has a worker hold blocks on a tier. The trie's lock is held, and given to others
// now and then.
func (x *Index) open(h *holder, t kvcache.Tier) error {
	if h.tiers[t].own != nil {
		return nil
	}
	own, err := x.trie.Join()
	if err != nil {
		return err
	}
	upTo := own
	if t > kvcache.Device {
		if upTo, err = x.trie.Join(); err != nil {
			x.trie.Leave(own)
			return err
		}
		for u := range t {
			x.eachNode(h, u, func(id uint32) { x.trie.Hold(id, upTo, x.trie.Positions(id, h.tiers[u].own)) })
		}
	}
	h.tiers[t].own, h.tiers[t].upTo = own, upTo
	h.found[t].Store(upTo.Slot() + 1)
	x.version.Add(1)
	return nil
}

// eachNode does something with each node that a worker has blocks of on a tier, and
// gives the trie's lock, which is held, to others now and then.
func (x *Index) eachNode(h *holder, t kvcache.Tier, do func(id uint32)) {
	tier := &h.tiers[t]
	if tier.own == nil {
		return
	}
	x.trie.Unlock() // a large table takes some milliseconds
	// Of a node without holes the worker has the first block.
	ids := slices.AppendSeq(tier.starts(nil), tier.own.Holed())
	if tier.own.Holes() > 0 || tier.extra.Len() > 0 {
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	x.trie.Lock()
	for i, id := range ids {
		if i%slice == slice-1 {
			x.trie.Unlock()
			x.trie.Lock()
		}
		if i%nodesAhead == 0 {
			h.touched += uint32(x.trie.Touch(ids[i:min(i+nodesAhead, len(ids))]))
		}
		do(id)
	}
}

// close takes all blocks of a worker out of the trie. What a find asks for goes first.
func (x *Index) close(h *holder) {
	x.trie.Lock()
	defer x.trie.Unlock()
	for t := range h.found {
		h.found[t].Store(0)
	}
	x.version.Add(1)
	h.tip = tip{}
	for t := range h.tiers {
		tier, all := kvcache.Tier(t), runtrie.Positions(0, runtrie.Run)
		x.eachNode(h, tier, func(id uint32) { x.drop(h, tier, id, all) })
	}
	for t := range h.tiers {
		if own := h.tiers[t].own; own != nil {
			x.trie.Leave(own)
			if up := h.tiers[t].upTo; up != own {
				x.trie.Leave(up)
			}
		}
		h.tiers[t] = tier{}
	}
	x.trie.Reclaim()
}

// admit decides whether a store's cache group is the one that counts, and learns from it.
func (h *holder) admit(ev *kvcache.Event) (kvcache.DropReason, bool) {
	other := h.other(ev.Group)
	switch ev.Attention {
	case kvcache.AttentionWindowed:
		h.learn(ev.Group)
		return kvcache.DropOtherGroup, false
	case kvcache.AttentionUnknown:
		h.learn(ev.Group)
		return kvcache.DropUnknownAttention, false
	case kvcache.AttentionPrefix:
		if !h.mainKnown && !other {
			h.mainKnown, h.main = true, ev.Group
		}
		if ev.Group != h.main || !h.mainKnown {
			h.learn(ev.Group)
			return kvcache.DropOtherGroup, false
		}
		return 0, true
	}
	if !h.mainKnown && ev.Group == 0 && !other {
		h.mainKnown, h.main = true, 0
	}
	return h.admitRemoval(ev)
}

// admitRemoval decides whether a group is the main one, without learning.
func (h *holder) admitRemoval(ev *kvcache.Event) (kvcache.DropReason, bool) {
	if h.other(ev.Group) {
		return kvcache.DropOtherGroup, false
	}
	if h.mainKnown && ev.Group == h.main || !h.mainKnown && ev.Group == 0 {
		return 0, true
	}
	return kvcache.DropUnknownGroup, false
}

// other tells whether a group is known not to be the main one.
func (h *holder) other(group int32) bool {
	if len(h.others) == 0 {
		return false
	}
	_, ok := h.others[group]
	return ok
}

func (h *holder) learn(group int32) {
	if (!h.mainKnown || group != h.main) && len(h.others) < maxGroups {
		h.others[group] = struct{}{}
	}
}

// repeats tells whether a list names a hash twice.
func (h *holder) repeats(list []kvcache.EngineHash) bool {
	if len(list) == 1 {
		return false
	}
	width := bits.Len(uint(len(list))) + 1 // two to four places for each
	h.seen = slices.Grow(h.seen[:0], 1<<width)[:1<<width]
	seen, mask := h.seen, uint64(1)<<width-1
	clear(seen)
	for i, e := range list {
		at := h.spread(e) >> (64 - width)
		for ; seen[at&mask] != 0; at++ {
			if list[seen[at&mask]-1] == e {
				return true
			}
		}
		seen[at&mask] = uint32(i + 1)
	}
	return false
}

// spread is a number for a hash of which the upper bits are as good as random.
func (h *holder) spread(e kvcache.EngineHash) uint64 {
	if n, ok := e.Number(); ok {
		return n * h.secret
	}
	return maphash.String(h.seed, e.Bytes())
}
