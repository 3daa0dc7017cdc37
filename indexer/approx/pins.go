package approx

import (
	"time"

	"github.com/routerd/routerd/indexer/runtrie"
)

// never is when a pin was recorded at which no decision ends.
const never time.Duration = -1

const (
	pinShift = 9
	pinPage  = 1 << pinShift
)

// pin keeps the leading blocks of a node held by a worker: because a decision ends with
// them, or because of nodes that hang behind them, of which the worker holds something.
type pin struct {
	at           time.Duration // since the index began, when its decision was last recorded; never without one
	older, newer uint32        // of those with a decision, by the last record
	end          runtrie.Ref   // the last of the blocks
	slot         uint32        // of the worker
	kids         uint32        // nodes behind the end
	shorter      uint32        // the worker's next pin in the node, with fewer blocks; 0 for none
}

// lead is how many blocks of its node a pin keeps.
func (p *pin) lead() uint32 {
	_, pos := p.end.Node()
	return pos + 1
}

// pins are all pins by number, in pages without pointers. Number 0 is the end of the list
// of those with a decision: its newer one is the oldest of all.
type pins struct {
	pages []*[pinPage]pin
	free  uint32 // a chain by shorter
	fresh uint32 // numbers from here on were never used
	used  int
}

func (s *pins) at(id uint32) *pin { return &s.pages[id>>pinShift][id&(pinPage-1)] }

func (s *pins) oldest() uint32 {
	if len(s.pages) == 0 {
		return 0
	}
	return s.at(0).newer
}

// alloc returns the number of a pin that has to be filled.
func (s *pins) alloc() uint32 {
	s.used++
	if id := s.free; id != 0 {
		s.free = s.at(id).shorter
		return id
	}
	if s.fresh == 0 {
		s.fresh = 1
	}
	if int(s.fresh>>pinShift) >= len(s.pages) {
		s.pages = append(s.pages, new([pinPage]pin))
	}
	s.fresh++
	return s.fresh - 1
}

// release takes a pin back, and all memory when it was the last one.
func (s *pins) release(id uint32) {
	if s.used--; s.used == 0 {
		*s = pins{}
		return
	}
	s.at(id).shorter, s.free = s.free, id
}

// link puts a pin into the list behind an older one.
func (s *pins) link(id, older uint32) {
	p, before := s.at(id), s.at(older)
	p.older, p.newer = older, before.newer
	s.at(before.newer).older, before.newer = id, id
}

// unlink takes a pin out of the list.
func (s *pins) unlink(id uint32) {
	p := s.at(id)
	s.at(p.older).newer, s.at(p.newer).older = p.newer, p.older
}
