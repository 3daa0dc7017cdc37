//go:build indexcheck

package runtrie

import (
	"fmt"
	"slices"
)

// Check tells what is wrong with the trie, whose lock is held. It is there under the
// build tag indexcheck alone.
func (t *Trie) Check() error {
	live := map[uint32]bool{}
	for id := uint32(1); id < t.nodes.fresh; id++ {
		live[id] = true
	}
	for _, id := range t.nodes.free {
		if !live[id] {
			return fmt.Errorf("node %d is free twice", id)
		}
		delete(live, id)
	}
	areas := 0
	for _, r := range t.epochs.waiting {
		switch r.what {
		case nodeGone:
			if !live[r.n] {
				return fmt.Errorf("node %d is gone and free", r.n)
			}
			delete(live, r.n)
		case areaGone:
			areas++
		}
	}
	kids, tops := map[uint32]uint32{}, map[uint32]uint32{}
	begins := map[[3]uint64]uint32{}
	for id := range live {
		n := t.nodes.at(id)
		kids[n.parent]++
		tops[n.parent] = max(tops[n.parent], uint32(n.attach))
		run := t.Blocks(id)
		if len(run) == 0 || len(run) > Run || len(run) > 1<<n.class {
			return fmt.Errorf("node %d has %d blocks in an area of class %d", id, len(run), n.class)
		}
		key := [3]uint64{uint64(n.parent), uint64(n.attach), uint64(run[0])}
		if twin, twice := begins[key]; twice {
			return fmt.Errorf("nodes %d and %d begin alike", id, twin)
		}
		begins[key] = id
		if n.parent != 0 && !live[n.parent] {
			return fmt.Errorf("node %d is below %d, which is gone", id, n.parent)
		}
		above := t.Blocks(n.parent)
		if int(n.attach) > len(above) || int(n.attach) < len(above) && above[n.attach] == run[0] {
			return fmt.Errorf("node %d is attached at %d of %d blocks", id, n.attach, len(above))
		}
		if got := t.child(t.nodes.at(n.parent), n.parent, uint32(n.attach), run[0]); got != id {
			return fmt.Errorf("node %d is not found as a child, but %d", id, got)
		}
	}
	if len(live) != t.children.used {
		return fmt.Errorf("%d children, want %d", t.children.used, len(live))
	}
	used, words, leaving, idle := 0, int64(0), 0, [classes]int{}
	for i := range t.areas.meta {
		m := &t.areas.meta[i]
		used += int(m.used)
		words += int64(m.used) << m.class
		if m.listed && m.used == 0 {
			idle[m.class]++
		}
		if m.leaving {
			leaving++
		}
		if m.listed != slices.Contains(t.areas.space[m.class], uint32(i)) && m.live || m.leaving && m.listed {
			return fmt.Errorf("page %d is listed wrongly", i)
		}
	}
	if words != t.areas.used || leaving != t.areas.leaving {
		return fmt.Errorf("%d words, %d pages that leave, want %d and %d", t.areas.used, t.areas.leaving, words, leaving)
	}
	if idle != t.areas.idle || slices.Max(idle[:]) > 1 {
		return fmt.Errorf("pages that are empty %v, want %v, one of a class at most", t.areas.idle, idle)
	}
	if used != areas+len(live) {
		return fmt.Errorf("%d areas are in use, want %d and %d that wait", used, len(live), areas)
	}
	live[0] = true
	for id := range live {
		n := t.nodes.at(id)
		if n.children() != kids[id] || uint32(n.top) < tops[id] || kids[id] == 0 && n.top != 0 {
			return fmt.Errorf("node %d has %d children up to %d, want %d up to %d", id, n.children(), n.top, kids[id], tops[id])
		}
		if err := t.checkCover(n, id); err != nil {
			return err
		}
	}
	return t.checkHolders(live)
}

// checkHolders has holes only at nodes that are there.
func (t *Trie) checkHolders(live map[uint32]bool) error {
	for _, h := range t.slots.all {
		if h == nil {
			continue
		}
		for id := range h.holes.All() {
			if !live[id] {
				return fmt.Errorf("slot %d has holes in node %d, which is gone", h.slot, id)
			}
		}
	}
	return nil
}

// checkCover compares what readers are told of a node with who holds it.
func (t *Trie) checkCover(n *node, id uint32) error {
	leads, err := t.leads(n, id)
	if err != nil {
		return err
	}
	held, holed := uint32(0), uint32(0)
	for slot, h := range t.slots.all {
		lead := leads[uint32(slot)]
		delete(leads, uint32(slot))
		if h == nil {
			if lead != 0 {
				return fmt.Errorf("node %d: slot %d, which is nobody's, leads by %d", id, slot, lead)
			}
			continue
		}
		has := first(lead)
		if m := h.holes.Get(id); m != (Mask{}) {
			if holed++; m.lead() != lead || m == first(lead) {
				return fmt.Errorf("node %d: slot %d leads by %d and has %v", id, slot, lead, m)
			}
			has = m
		}
		if has.Minus(first(uint32(len(t.Blocks(id))))) != (Mask{}) {
			return fmt.Errorf("node %d: slot %d has %v of %d blocks", id, slot, has, len(t.Blocks(id)))
		}
		held += has.count()
	}
	if len(leads) > 0 {
		return fmt.Errorf("node %d is covered by %v, which are no slots", id, leads)
	}
	if held != n.held || holed != n.holed || id != 0 && held == 0 && n.children() == 0 {
		return fmt.Errorf("node %d: %d held and %d holed, want %d and %d", id, n.held, n.holed, held, holed)
	}
	return nil
}

// leads reads a node's cover.
func (t *Trie) leads(n *node, id uint32) (map[uint32]uint32, error) {
	var all []uint32
	c := t.nodes.crowd(id).Load()
	if (c != nil) != n.inCrowd() || n.version.Load()&1 != 0 {
		return nil, fmt.Errorf("node %d: crowded is %v, version %d", id, n.inCrowd(), n.version.Load())
	}
	for i := range n.cover {
		if w := n.cover[i].Load(); w != 0 {
			all = append(all, w)
		}
	}
	if c != nil {
		if len(all) > 0 {
			return nil, fmt.Errorf("node %d has two covers", id)
		}
		if all = c.all(); c.holders != len(all) || c.holders <= inline/2 || int(c.count.Load()) > c.most {
			return nil, fmt.Errorf("node %d: %d of %d holders, %d exceptions of %d", id, c.holders, len(all), c.count.Load(), c.most)
		}
		for i := range c.list[:c.count.Load()] {
			if c.list[i].Load()&0xff == c.lead {
				return nil, fmt.Errorf("node %d: an exception is none", id)
			}
		}
	}
	leads := map[uint32]uint32{}
	for _, w := range all {
		slot, lead := unpackCover(w)
		if leads[slot] != 0 || lead == 0 || lead > Run {
			return nil, fmt.Errorf("node %d: slot %d leads by %d and %d", id, slot, leads[slot], lead)
		}
		leads[slot] = lead
	}
	return leads, nil
}

// Waiting is how many numbers wait to be used again.
func (t *Trie) Waiting() int {
	return len(slices.DeleteFunc(slices.Clone(t.epochs.waiting), func(r retired) bool { return r.what == slotGone }))
}

// Held is how many positions a holder has in all.
func (t *Trie) Held(h *Holder) (n int) {
	for id := uint32(1); id < t.nodes.fresh; id++ {
		n += int(t.Positions(id, h).count())
	}
	return n
}
