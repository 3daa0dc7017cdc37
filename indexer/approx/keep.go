package approx

import (
	"time"

	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// grow makes the path of some blocks, which leads from the root through each node from its first block on. Where the
// trie is full, old decisions make room; false is that even that does not help.
func (x *Index) grow(blocks []kvcache.BlockHash) bool {
	for {
		var err error
		if x.path, err = x.trie.Grow(x.path[:0], 0, 0, blocks); err == nil {
			return true
		}
		if x.pins.oldest() == 0 {
			return false
		}
		x.dropOldest(slice)
	}
}

// keep has a worker hold the path and puts its decision at the end of the list.
func (x *Index) keep(w *worker, now time.Duration) {
	last := len(x.path) - 1
	end, fresh := x.pin(w, x.path[last])
	for i := last; fresh && i > 0; {
		i--
		var up uint32
		up, fresh = x.pin(w, x.path[i])
		x.pins.at(up).kids++
	}
	if x.pins.at(end).at != never {
		x.unlist(w, end)
	}
	x.list(w, end, x.pins.at(0).older, now)
}

// pin returns the worker's pin for the beginning of a node, which it makes where there is none, and whether it is the
// worker's first in that node.
func (x *Index) pin(w *worker, s runtrie.Stretch) (id uint32, fresh bool) {
	longest := w.nodes.get(s.Node)
	end := runtrie.RefOf(s.Node, s.To-1)
	before, id := uint32(0), longest
	for id != 0 && x.pins.at(id).end > end {
		before, id = id, x.pins.at(id).shorter
	}
	if id != 0 && x.pins.at(id).end == end {
		return id, false
	}
	made := x.pins.alloc()
	*x.pins.at(made) = pin{at: never, end: end, slot: w.slot, shorter: id}
	if before != 0 {
		x.pins.at(before).shorter = made
		return made, false
	}
	had := uint32(0)
	if longest != 0 {
		had = x.pins.at(longest).lead()
	}
	x.trie.Hold(s.Node, w.holder, runtrie.Positions(had, s.To))
	x.count(w, int(s.To-had))
	w.nodes.set(s.Node, made)
	return made, longest == 0
}

// count notes that a worker holds so many blocks more.
func (x *Index) count(w *worker, n int) {
	w.blocks += n
	x.blocks += n
}

// list has a decision end at a pin that has none, next to an older one.
func (x *Index) list(w *worker, id, older uint32, at time.Duration) {
	x.pins.at(id).at = at
	x.pins.link(id, older)
	w.decisions.Add(1)
	if x.cfg.Settles {
		w.ends.add(x.endKey(x.last(id)), id)
	}
}

// unlist takes the decision from a pin.
func (x *Index) unlist(w *worker, id uint32) {
	x.pins.at(id).at = never
	x.pins.unlink(id)
	w.decisions.Add(-1)
	if x.cfg.Settles {
		w.ends.remove(x.endKey(x.last(id)), id)
	}
}

// drop lets go of a decision, and of the pins that were there for it alone.
func (x *Index) drop(id uint32) {
	w := x.slots[x.pins.at(id).slot]
	x.unlist(w, id)
	for id != 0 {
		if p := x.pins.at(id); p.at != never || p.kids > 0 {
			return
		}
		id = x.take(w, id)
	}
}

// take takes out a pin that nothing keeps, and what only it had. It returns the pin above that has a node less behind
// it, or 0.
func (x *Index) take(w *worker, id uint32) (above uint32) {
	p := x.pins.at(id)
	node, _ := p.end.Node()
	shorter := p.shorter
	if longest := w.nodes.get(node); longest != id {
		for x.pins.at(longest).shorter != id {
			longest = x.pins.at(longest).shorter
		}
		x.pins.at(longest).shorter = shorter
		x.pins.release(id)
		return 0
	}
	left := uint32(0)
	if shorter != 0 {
		left = x.pins.at(shorter).lead()
		w.nodes.set(node, shorter)
	} else {
		w.nodes.remove(node, id)
		above = x.above(w, node)
	}
	x.count(w, -int(p.lead()-left))
	x.trie.Drop(node, w.holder, runtrie.Positions(left, p.lead()))
	x.pins.release(id)
	return above
}

// above returns the pin that was kept by a node, which it is not any more, or 0.
func (x *Index) above(w *worker, node uint32) uint32 {
	parent, attach := x.trie.Above(node)
	if parent == 0 {
		return 0
	}
	id := w.nodes.get(parent)
	for x.pins.at(id).lead() != attach {
		id = x.pins.at(id).shorter
	}
	x.pins.at(id).kids--
	return id
}
