package affinity

import (
	"container/heap"
	"time"
)

// reapBatch bounds what one hold of the lock removes.
const reapBatch = 1024

// Reap removes the bindings whose idle time has ended and returns their number.
// What it finds is gone for the other methods already: it gives the memory back.
func (t *Table) Reap(now time.Time) int {
	for sum := 0; ; {
		n := t.reap(now)
		if sum += n; n < reapBatch {
			return sum
		}
	}
}

func (t *Table) reap(now time.Time) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n < reapBatch && len(t.idle) > 0 && t.idle[0].over(now) {
		t.expire(t.idle[0])
		n++
	}
	return n
}

// Drop removes the bindings to targets that have gone, whether leased or not, and
// returns their number. gone is asked once a target, without the lock.
func (t *Table) Drop(gone func(Target) bool) int {
	targets := t.targets()
	for target := range targets {
		if !gone(target) {
			delete(targets, target)
		}
	}
	if len(targets) == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, e := range t.entries {
		if _, hit := targets[e.target]; hit && e.bound {
			t.remove(e)
			n++
		}
	}
	return n
}

func (t *Table) targets() map[Target]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	targets := map[Target]struct{}{}
	for _, e := range t.entries {
		if e.bound {
			targets[e.target] = struct{}{}
		}
	}
	return targets
}

// over tells whether a binding's idle time has ended: at its deadline it has.
func (e *entry) over(now time.Time) bool {
	return e.at >= 0 && !now.Before(e.deadline)
}

// arm begins the idle time of a bound entry without leases. One that runs already
// never gets shorter.
func (t *Table) arm(e *entry, now time.Time) {
	until := now.Add(t.cfg.TTL)
	switch {
	case e.at < 0:
		e.deadline = until
		heap.Push(&t.idle, e)
	case until.After(e.deadline):
		e.deadline = until
		heap.Fix(&t.idle, e.at)
	}
}

// disarm ends the idle time of an entry, if it runs.
func (t *Table) disarm(e *entry) {
	if e.at >= 0 {
		heap.Remove(&t.idle, e.at)
	}
}

func (t *Table) expire(e *entry) {
	t.remove(e)
	t.expired++
}

// deadlines is a heap of idle entries by deadline, implementing heap.Interface.
type deadlines []*entry

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].deadline.Before(d[j].deadline) }

func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].at, d[j].at = i, j
}

func (d *deadlines) Push(x any) {
	e := x.(*entry)
	e.at = len(*d)
	*d = append(*d, e)
}

func (d *deadlines) Pop() any {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	e.at = -1
	return e
}

var _ heap.Interface = (*deadlines)(nil)
