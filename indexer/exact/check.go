//go:build indexcheck

package exact

import (
	"fmt"

	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// verify stops the process where an invariant of the trie or of h, whose lock is held, is
// broken. It is there under the build tag indexcheck alone.
func (x *Index) verify(h *holder) {
	x.trie.Lock()
	defer x.trie.Unlock()
	if err := x.trie.Check(); err != nil {
		panic(err)
	}
	if at, _ := h.tiers[h.tip.tier].get(h.tip.hash); h.tip.at != 0 && at != h.tip.at {
		panic(fmt.Sprintf("hash %s means block %d, want %d as of the last store", h.tip.hash, at, h.tip.at))
	}
	if got := h.measure(); !h.gone && h.bytes != got {
		panic(fmt.Sprintf("%d bytes of memory are told, want %d", h.bytes, got))
	}
	var below map[runtrie.Ref]bool
	for t := range h.tiers {
		tab := &h.tiers[t]
		if tab.own == nil {
			if tab.size() > 0 || h.found[t].Load() != 0 {
				panic("a tier without a holder has blocks")
			}
			continue
		}
		of, more := map[runtrie.Ref]uint32{}, uint32(0)
		tab.each(func(e kvcache.EngineHash, at runtrie.Ref) {
			of[at]++
			if got, _ := tab.get(e); got != at {
				panic(fmt.Sprintf("hash %s is not found", e))
			}
		})
		for at, n := range of {
			if tab.extra.Get(at) != n-1 {
				panic(fmt.Sprintf("block %d has %d hashes more, want %d", at, tab.extra.Get(at), n-1))
			}
			if n > 1 {
				more++
			}
		}
		if tab.extra.Len() != int(more) {
			panic("blocks without hashes have more")
		}
		below = x.checkHolder(tab.own, of, nil)
		for u := range t {
			h.tiers[u].each(func(_ kvcache.EngineHash, at runtrie.Ref) { below[at] = true })
		}
		if t > 0 {
			x.checkHolder(tab.upTo, nil, below)
		}
	}
}

// checkHolder wants a holder to have the blocks that are keys of either, and returns them.
func (x *Index) checkHolder(who *runtrie.Holder, of map[runtrie.Ref]uint32, all map[runtrie.Ref]bool) map[runtrie.Ref]bool {
	if all == nil {
		all = map[runtrie.Ref]bool{}
		for at := range of {
			all[at] = true
		}
	}
	n := 0
	for at := range all {
		if id, pos := at.Node(); !x.trie.Positions(id, who).Has(pos) {
			panic(fmt.Sprintf("block %d is not held", at))
		}
		n++
	}
	if got := x.trie.Held(who); got != n {
		panic(fmt.Sprintf("%d blocks are held, want %d", got, n))
	}
	return all
}
