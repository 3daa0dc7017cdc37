package queue

// standing is what waits in one class.
type standing struct {
	class   *Class // never written to: callers may keep it
	has     amount // lanes and held ones
	deficit int64  // prompt tokens that the class may still send; see Next
	lanes   heap[*lane]
	byName  map[string]*lane
	held    []*Waiter
}

// lane holds at least one waiter.
type lane struct {
	name    string
	waiting heap[*Waiter]
	pos     int
}

func (l *lane) head() *Waiter       { return l.waiting[0] }
func (l *lane) before(o *lane) bool { return l.head().before(o.head()) }
func (l *lane) moved(to int)        { l.pos = to }

func newStanding(cl *Class) *standing {
	return &standing{class: cl, byName: map[string]*lane{}}
}

// hold counts a waiter and puts it into no lane.
func (s *standing) hold(w *Waiter) {
	w.place(s.class.Order)
	w.standing, w.lane, w.pos = s, nil, len(s.held)
	s.has.add(w.counts)
	s.held = append(s.held, w)
}

// enter counts a waiter and puts it into its lane.
func (s *standing) enter(w *Waiter) {
	w.place(s.class.Order)
	s.has.add(w.counts)
	l := s.byName[w.Lane]
	if l == nil {
		l = &lane{name: w.Lane}
		w.standing, w.lane = s, l
		l.waiting.push(w)
		s.byName[l.name] = l
		s.lanes.push(l)
		return
	}
	w.standing, w.lane = s, l
	l.waiting.push(w)
	if w.pos == 0 {
		s.lanes.fix(l.pos)
	}
}

// leave takes a waiter out of its lane or from the held ones.
func (s *standing) leave(w *Waiter) {
	s.has.sub(w.counts)
	l := w.lane
	w.standing, w.lane = nil, nil
	if l == nil {
		s.release(w)
		return
	}
	first := w.pos == 0
	l.waiting.remove(w.pos)
	if len(l.waiting) == 0 {
		s.lanes.remove(l.pos)
		delete(s.byName, l.name)
	} else if first {
		s.lanes.fix(l.pos)
	}
	if len(s.lanes) == 0 {
		s.deficit = 0 // a class saves nothing while it has nothing to send
	}
}

func (s *standing) release(w *Waiter) {
	last := len(s.held) - 1
	moved := s.held[last]
	s.held[w.pos], moved.pos = moved, w.pos
	s.held[last] = nil
	s.held = s.held[:last]
}

// best is the first lane at or below place i of the heap whose head may go, if
// that comes before the one that is given; else the one that is given. What is
// below a lane comes after it, so that no head is asked for twice and none below
// one that may go.
func (s *standing) best(i int, than *lane, may func(*Waiter) bool) *lane {
	if i >= len(s.lanes) || than != nil && !s.lanes[i].before(than) {
		return than
	}
	if may(s.lanes[i].head()) {
		return s.lanes[i]
	}
	than = s.best(2*i+1, than, may)
	return s.best(2*i+2, than, may)
}
