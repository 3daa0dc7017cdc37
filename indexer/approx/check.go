//go:build indexcheck

package approx

import (
	"fmt"

	"github.com/routerd/routerd/indexer/runtrie"
)

// verify stops the process where an invariant of the trie or of the pins is broken; the lock is held. It is there under
// the build tag indexcheck alone.
func (x *Index) verify() {
	if err := x.trie.Check(); err != nil {
		panic(err)
	}
	must := func(ok bool, text string, args ...any) {
		if !ok {
			panic(fmt.Sprintf(text, args...))
		}
	}
	blocks, pins, decisions, tables := 0, 0, 0, 0
	for slot, w := range x.slots {
		if w == nil {
			continue
		}
		kids, held, ends := map[runtrie.Ref]uint32{}, 0, 0
		for _, s := range w.nodes.slots {
			if s.pin == 0 {
				continue
			}
			longest := x.pins.at(s.pin).lead()
			must(x.trie.Positions(s.key, w.holder) == runtrie.Positions(0, longest), "node %d is not held up to %d", s.key, longest)
			held += int(longest)
			if parent, attach := x.trie.Above(s.key); parent != 0 {
				kids[runtrie.RefOf(parent, attach-1)]++
			}
		}
		for _, s := range w.nodes.slots {
			above := runtrie.RefOf(s.key, runtrie.Run-1) + 1
			for id := s.pin; id != 0; id = x.pins.at(id).shorter {
				p := x.pins.at(id)
				node, _ := p.end.Node()
				must(p.end < above && node == s.key && int(p.slot) == slot, "pin %d of node %d ends at %d of slot %d", id, s.key, p.end, p.slot)
				must(p.kids == kids[p.end] && (p.kids > 0 || p.at != never), "pin %d has %d nodes, want %d", id, p.kids, kids[p.end])
				delete(kids, p.end)
				if p.at != never {
					ends++
				}
				above = p.end
				pins++
			}
		}
		must(len(kids) == 0, "%v have no pins", kids)
		must(x.trie.Held(w.holder) == held && w.blocks == held, "%d blocks, want %d", w.blocks, held)
		must(w.decisions.Load() == int64(ends) && (!x.cfg.Settles || w.ends.used == ends), "%d decisions, want %d", w.decisions.Load(), ends)
		blocks += held
		decisions += ends
		tables += 8 * (len(w.nodes.slots) + len(w.ends.slots))
	}
	must(x.blocks == blocks && x.pins.used == pins && x.tables == tables, "%d blocks, %d pins, %d bytes, want %d, %d, %d", x.blocks, x.pins.used, x.tables, blocks, pins, tables)
	before := never
	for id := x.pins.oldest(); id != 0; id = x.pins.at(id).newer {
		must(x.pins.at(id).at >= before, "the list is not in order")
		before = x.pins.at(id).at
		decisions--
	}
	must(decisions == 0, "%d decisions are not in the list", decisions)
}
