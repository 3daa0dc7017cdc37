package approx

import (
	"math"
	"time"

	"github.com/routerd/routerd/indexer/runtrie"
)

const (
	slice = 1024        // decisions that go before others are let in
	all   = math.MaxInt // decisions
)

// expire lets go of decisions that are over, at most so many, and tells whether none is left of those.
func (x *Index) expire(now time.Duration, most int) bool {
	for id := x.pins.oldest(); id != 0 && x.cfg.TTL > 0 && now-x.pins.at(id).at >= x.cfg.TTL; id = x.pins.oldest() {
		if most--; most < 0 {
			return false
		}
		x.drop(id)
	}
	return true
}

// dropOldest lets go of the n oldest decisions.
func (x *Index) dropOldest(n int) {
	for ; n > 0 && x.pins.used > 0; n-- {
		x.drop(x.pins.oldest())
	}
	x.trie.Reclaim()
}

// limit lets go of the oldest decisions until the limits are kept.
func (x *Index) limit() {
	for x.cfg.MaxBlocks > 0 && x.blocks > x.cfg.MaxBlocks {
		x.shorten(x.pins.oldest(), uint32(x.blocks-x.cfg.MaxBlocks))
	}
	if x.cfg.MaxBytes == 0 {
		return
	}
	// Pages that are partly used are given back only when nothing in them is: that must not cost more than half.
	for x.pins.used > 0 {
		bytes, used := x.bytes()
		if bytes <= x.cfg.MaxBytes || used <= x.cfg.MaxBytes/2 {
			return
		}
		x.dropOldest(16)
	}
}

// shorten takes up to n blocks from the end of the oldest decision, as far as they are in one node. What is left stays
// the oldest.
func (x *Index) shorten(id, n uint32) {
	p := x.pins.at(id)
	w, at := x.slots[p.slot], p.at
	node, pos := p.end.Node()
	own := uint32(0) // blocks of the node that only this decision keeps
	if p.kids == 0 && w.nodes.get(node) == id {
		own = p.lead()
		if p.shorter != 0 {
			own -= x.pins.at(p.shorter).lead()
		}
	}
	x.unlist(w, id)
	switch {
	case own > n:
		x.count(w, -int(n))
		p.end = runtrie.RefOf(node, pos-n)
		x.list(w, id, 0, at)
		x.trie.Drop(node, w.holder, runtrie.Positions(pos+1-n, pos+1))
	case p.kids == 0:
		if up := x.take(w, id); up != 0 && x.pins.at(up).at == never && x.pins.at(up).kids == 0 {
			x.list(w, up, 0, at)
		}
	}
}

// empty lets go of all that a worker holds, to whom nothing is added any more. The lock is given to others now and then.
func (x *Index) empty(w *worker) {
	for i, n := 0, 0; w.nodes.used > 0; {
		i %= len(w.nodes.slots) // decisions that went moved what was behind them, to before i too
		id := w.nodes.slots[i].pin
		for id != 0 && x.pins.at(id).at == never {
			id = x.pins.at(id).shorter
		}
		if id == 0 {
			i++
			continue
		}
		x.drop(id)
		if n++; n%slice == 0 {
			x.trie.Unlock()
			x.trie.Lock()
		}
	}
}

// arm sets the timer to when the oldest decision is over, unless it is set.
func (x *Index) arm() {
	id := x.pins.oldest()
	if x.armed || x.closed || x.cfg.TTL == 0 || id == 0 {
		return
	}
	x.armed = true
	tick := x.cfg.TTL / 100
	now := x.now()
	due := x.pins.at(id).at + x.cfg.TTL
	wait := (due+tick-1)/tick*tick - now
	if x.timer == nil {
		x.timer = time.AfterFunc(wait, x.wake)
	} else {
		x.timer.Reset(wait)
	}
}

// wake lets go of what is over.
func (x *Index) wake() {
	x.trie.Lock()
	defer x.trie.Unlock()
	for x.armed = false; !x.expire(x.now(), slice); {
		x.trie.Unlock() // let others in
		x.trie.Lock()
	}
	x.trie.Reclaim()
	x.arm()
	x.verify()
}
