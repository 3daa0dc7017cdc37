package scrape

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"time"

	"github.com/routerd/routerd/internal/backoff"
)

// Why two lanes? An engine that hangs holds its place until the time limit. A
// thousand of them would hold all places for good, and the others' reports would
// grow old. So an engine is prompt until it fails or takes a quarter of the limit;
// then it waits among its like, where there are places of their own, and has the
// whole limit.

// laneOf is where the member waits.
func (k *keeper) laneOf(m *member) *lane {
	if m.slow {
		return &k.slow
	}
	return &k.prompt
}

// begin has everybody asked whose time has come and for whom there is room, and
// tells how long to wait for the next; below 0 when only an answer or a change of
// the list can bring one.
func (k *keeper) begin(ctx context.Context) time.Duration {
	wait := time.Duration(-1)
	for _, l := range []*lane{&k.prompt, &k.slow} {
		for len(l.queue) > 0 && k.room(l) {
			if left := time.Until(l.queue[0].due); left > 0 {
				if wait < 0 || left < wait {
					wait = left
				}
				break
			}
			k.ask(ctx, l)
		}
	}
	return wait
}

// room tells whether one more of a lane may be asked.
func (k *keeper) room(l *lane) bool {
	if k.prompt.running+k.slow.running >= maxAsked {
		return false
	}
	return l == &k.prompt || l.running < maxAsked-min(keptPrompt, len(k.prompt.queue)+k.prompt.running)
}

// configure takes over another configuration: whoever waits longer than it wants
// waits less.
func (k *keeper) configure(cfg Config) {
	k.cfg = cfg
	now := time.Now()
	for _, l := range []*lane{&k.prompt, &k.slow} {
		for _, m := range l.queue {
			if due := now.Add(spread(pause(cfg.Interval, m.failures), rand.Float64())); due.Before(m.due) {
				m.due = due
			}
		}
		heap.Init(l)
	}
}

// ask has a goroutine visit the next member of a lane.
func (k *keeper) ask(ctx context.Context, l *lane) {
	m, _ := heap.Pop(l).(*member) // there is nothing else in it
	l.running++
	q := question{member: m, page: m.page, timeout: k.cfg.Timeout}
	if !m.slow {
		q.timeout = max(k.cfg.Timeout/patience, MinTimeout)
	}
	visiting, cancel := context.WithCancel(ctx)
	m.cancel = cancel
	k.children.Go(func() {
		defer cancel()
		a := k.visit(visiting, q)
		if visiting.Err() != nil { // nobody wants the connection any more
			m.line.close()
		}
		select {
		case k.answers <- a:
		case <-ctx.Done():
			m.line.close()
		}
	})
}

// ended takes an answer and plans the next question.
func (k *keeper) ended(a answer) {
	m := a.member
	k.laneOf(m).running--
	m.cancel()
	m.cancel = nil
	if m.gone {
		m.line.close()
		return
	}
	r := resultOf(a.err)
	hasty := r == timedOut && !m.slow // it shall have the whole limit before it counts as failed
	m.slow = r == unreachable || r == timedOut || a.took > k.cfg.Timeout/patience
	switch {
	case hasty:
		m.due = time.Now()
	case r == answered:
		m.failures = 0
		m.due = a.began.Add(spread(k.cfg.Interval, rand.Float64()))
	default:
		m.failures++
		m.due = a.began.Add(spread(pause(k.cfg.Interval, m.failures), rand.Float64()))
	}
	if !hasty {
		k.tell(m, r, a.err)
	}
	heap.Push(k.laneOf(m), m)
}

// pause is how long an engine is left alone that failed so many times in a row.
func pause(interval time.Duration, failures int) time.Duration {
	return backoff.Doubled(interval, max(interval, lastPause), failures)
}

// tell logs that an engine is asked with another result than before.
func (k *keeper) tell(m *member, r result, err error) {
	was := m.last
	m.last = r
	switch {
	case r == was:
	case r == answered:
		k.log.Info("engine tells its load again", "worker", m.name)
	default:
		k.log.Warn("engine does not tell its load", "worker", m.name, "reason", r.String(), "err", err)
	}
}

// queue is the members of a lane, the one that is due first at the top.
type queue []*member

// Len implements heap.Interface.
func (q queue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

// Swap implements heap.Interface.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	m, _ := x.(*member) // nothing else is pushed
	m.at = len(*q)
	*q = append(*q, m)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	m := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	m.at = -1
	return m
}
