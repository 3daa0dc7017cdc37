package queue

// Next takes out who goes now and returns it; nil when no lane's head may go. may
// is called at most once for the head of each lane, in no certain order; it must
// not change the queue.
//
// Each class has a deficit, the prompt tokens that it may still send. The
// classes are looked at in turn, and the first that can pay for its first head
// that may go sends it. When none can, all classes that have such a head get
// their weight in tokens, as many times as the first of them needs: so it ends
// after one pass more, and no class saves more than one request and its weight.
func (q *Queue) Next(may func(*Waiter) bool) *Waiter {
	defer clear(q.picks)
	for i := range q.classes {
		at := (q.turn + i) % len(q.classes)
		s := q.classes[at]
		l := s.best(0, nil, may)
		if l == nil {
			continue
		}
		if w := l.head(); w.cost() <= s.deficit {
			return q.send(at, w)
		}
		q.picks[at] = l.head()
	}
	q.refill()
	for i := range q.classes {
		at := (q.turn + i) % len(q.classes)
		if w := q.picks[at]; w != nil && w.cost() <= q.classes[at].deficit {
			return q.send(at, w)
		}
	}
	return nil
}

// refill gives each class with a pick its weight, as often as it takes until one
// of them can pay.
func (q *Queue) refill() {
	rounds := int64(maxTokens)
	for at, w := range q.picks {
		if w != nil {
			s := q.classes[at]
			rounds = min(rounds, (w.cost()-s.deficit+s.weight()-1)/s.weight())
		}
	}
	for at, w := range q.picks {
		if w != nil {
			q.classes[at].deficit += rounds * q.classes[at].weight()
		}
	}
}

// send takes out a waiter of the class at that place, which pays; the next class
// is looked at first from then on.
func (q *Queue) send(at int, w *Waiter) *Waiter {
	q.classes[at].deficit -= w.cost()
	q.turn = (at + 1) % len(q.classes)
	q.Remove(w)
	return w
}

func (s *standing) weight() int64 { return int64(max(1, s.class.Weight)) }
