package queue

// Queue holds the waiting requests of a partition. The partition's lock guards
// it.
type Queue struct {
	classes []*standing // in the order of the config
	byName  map[string]*standing
	turn    int       // the class that Next looks at first
	picks   []*Waiter // by class, of one call of Next
	len     int
	pushed  uint64
}

// New makes an empty queue. cfg must be valid.
func New(cfg Config) *Queue {
	q := &Queue{}
	q.Configure(cfg)
	return q
}

// Configure takes over a valid cfg. Whoever waits keeps its class, lane, arrival
// and order of pushing; a class whose order changes is sorted anew. Those of a
// class that is no more go to "default". No limit removes who waits already.
func (q *Queue) Configure(cfg Config) {
	before := q.classes
	q.classes, q.byName, q.turn = nil, map[string]*standing{}, 0
	for i := range cfg.Classes {
		cl := cfg.Classes[i]
		q.admit(&cl)
	}
	if q.byName[DefaultClass] == nil {
		cl := DefaultConfig().Classes[0]
		q.admit(&cl)
	}
	q.picks = make([]*Waiter, len(q.classes))
	for _, old := range before {
		now := q.of(old.class.Name)
		for _, w := range old.held {
			now.hold(w)
		}
		for _, l := range old.lanes {
			for _, w := range l.waiting {
				now.enter(w)
			}
		}
		if now.class.Name == old.class.Name {
			now.deficit = old.deficit
		}
	}
}

// Class is the class of that name, or "default". It is never changed: a
// Configure makes new ones. The caller does not write to it.
func (q *Queue) Class(name string) *Class { return q.of(name).class }

// Push puts a waiter into its lane, or refuses it with a *FullError when a limit
// of its class is reached. workers is the number of ready workers of the
// partition; below 1 counts as 1. A waiter that is in a queue stays as it is.
func (q *Queue) Push(w *Waiter, workers int) error {
	return q.add(w, workers, (*standing).enter)
}

// Hold is Push, but the waiter stands in no lane until Enter: it waits for
// something else than a worker.
func (q *Queue) Hold(w *Waiter, workers int) error {
	return q.add(w, workers, (*standing).hold)
}

// Enter puts a waiter that is held into its lane, by its arrival and the time of
// its Hold, whatever the limits. Lane, Tokens and Cached may have changed since
// the Hold. It does the same with one that has left, such as one that Next gave
// and that could not go after all: it keeps its place, and its class pays for it
// again. One that stands in a lane stays there.
func (q *Queue) Enter(w *Waiter) {
	switch {
	case w.queue == nil:
		q.own(w)
		q.of(w.Class).enter(w)
	case w.queue == q && w.lane == nil:
		s := w.standing
		s.leave(w)
		s.enter(w)
	}
}

// Remove takes a waiter out of its lane or from the held ones. It reports false
// when it was not there: Next has given it, it was removed before or never came.
func (q *Queue) Remove(w *Waiter) bool {
	if w.queue != q {
		return false
	}
	w.standing.leave(w)
	w.queue = nil
	q.len--
	return true
}

// Backlog tells whether anybody stands in that lane of that class. Whoever comes
// to it does not go before them.
func (q *Queue) Backlog(class, lane string) bool {
	return q.of(class).byName[lane] != nil
}

// Len is the number of all that wait, held ones included.
func (q *Queue) Len() int { return q.len }

// Waiting tells each class, in the order of the config, with what waits in it,
// held ones included. each must not change the queue.
func (q *Queue) Waiting(each func(class string, requests int, tokens int64)) {
	for _, s := range q.classes {
		each(s.class.Name, int(s.has.requests), s.has.tokens)
	}
}

func (q *Queue) admit(cl *Class) {
	s := newStanding(cl)
	q.classes = append(q.classes, s)
	q.byName[cl.Name] = s
}

func (q *Queue) of(class string) *standing {
	if s := q.byName[class]; s != nil {
		return s
	}
	return q.byName[DefaultClass]
}

func (q *Queue) add(w *Waiter, workers int, put func(*standing, *Waiter)) error {
	if w.queue != nil {
		return nil
	}
	s := q.of(w.Class)
	if err := s.class.full(s.has, workers); err != nil {
		return err
	}
	w.pushed = 0
	q.own(w)
	put(s, w)
	return nil
}

// own counts a waiter, and numbers it if it has no number.
func (q *Queue) own(w *Waiter) {
	q.len++
	w.queue = q
	if w.pushed == 0 {
		q.pushed++
		w.pushed = q.pushed
	}
}
