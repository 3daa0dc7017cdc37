package reserve

import (
	"cmp"
	"container/heap"
	"time"
)

// unscheduled is the place of a reservation that stands in no schedule.
const unscheduled = -1

// schedule holds the reservations that can expire, the next one first; of those
// that expire together, in the order of their ids. The Book's lock guards it.
type schedule struct{ rs []*Reservation }

var _ heap.Interface = (*schedule)(nil)

func (s *schedule) add(r *Reservation) { heap.Push(s, r) }

// remove takes a reservation out that may stand in it.
func (s *schedule) remove(r *Reservation) {
	if r.place != unscheduled {
		heap.Remove(s, r.place)
	}
}

// takeUntil takes out all that do not expire after now, in order.
func (s *schedule) takeUntil(now time.Time) []*Reservation {
	var due []*Reservation
	for len(s.rs) > 0 && !s.rs[0].expires.After(now) {
		due = append(due, s.rs[0])
		heap.Pop(s)
	}
	return due
}

// Len implements heap.Interface.
func (s *schedule) Len() int { return len(s.rs) }

// Less implements heap.Interface.
func (s *schedule) Less(i, j int) bool {
	a, b := s.rs[i], s.rs[j]
	return cmp.Or(a.expires.Compare(b.expires), cmp.Compare(a.id, b.id)) < 0
}

// Swap implements heap.Interface.
func (s *schedule) Swap(i, j int) {
	s.rs[i], s.rs[j] = s.rs[j], s.rs[i]
	s.rs[i].place, s.rs[j].place = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	r, ok := x.(*Reservation)
	if !ok {
		return
	}
	r.place = len(s.rs)
	s.rs = append(s.rs, r)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(s.rs) - 1
	r := s.rs[last]
	s.rs[last] = nil
	s.rs, r.place = s.rs[:last], unscheduled
	return r
}
