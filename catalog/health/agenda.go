package health

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// agenda is the workers that something is due of, the earliest first. Its methods
// are those of container/heap, which nobody else calls.
type agenda []*watched

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].due.Before(a[j].due) }
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

// Push adds at the end.
func (a *agenda) Push(x any) {
	w, ok := x.(*watched)
	if !ok {
		return
	}
	w.place = len(*a)
	*a = append(*a, w)
}

// Pop takes from the end.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	w := (*a)[last]
	(*a)[last], *a = nil, (*a)[:last]
	w.place = -1
	return w
}

// set puts a worker where its time is.
func (a *agenda) set(w *watched, due time.Time) {
	w.due = due
	if w.place >= 0 {
		heap.Fix(a, w.place)
		return
	}
	heap.Push(a, w)
}

func (a *agenda) remove(w *watched) {
	if w.place >= 0 {
		heap.Remove(a, w.place)
	}
}

// schedule plans what comes next of a worker: its next probe, at a moment that is
// given, and earlier where an ejection ends before. Without probes there is
// only that. mu must be held.
func (m *Monitor) schedule(w *watched, now, due time.Time) {
	until := w.machine.until
	switch {
	case w.flight != nil: // its end schedules
		return
	case !m.cfg.asks() && w.machine.ejected == "":
		m.agenda.remove(w)
		return
	case !m.cfg.asks(), until.After(now) && until.Before(due):
		due = until
	}
	m.agenda.set(w, due)
}

// spread is a moment within the interval, for the first probe.
func spread(interval time.Duration) time.Duration {
	if interval <= 0 {
		return 0
	}
	return rand.N(interval)
}

// jitter is the interval, more or less up to a fifth.
func jitter(interval time.Duration) time.Duration {
	return interval - interval/5 + rand.N(2*interval/5+1)
}
