package queue_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/routerd/routerd/core/queue"
)

const many = 4096

// inALane makes so many waiters in random order of arrival.
func inALane(n int, lane func(i int) string) []*queue.Waiter {
	rng := rand.New(rand.NewPCG(1, 2))
	ws := make([]*queue.Waiter, n)
	for i := range ws {
		ws[i] = &queue.Waiter{Lane: lane(i), Arrival: at(float64(rng.IntN(1000))), Tokens: int64(1 + rng.IntN(8192))}
	}
	return ws
}

func one(int) string { return "" }

func each(i int) string { return fmt.Sprint("w", i) }

func config() queue.Config { return classes(class("default", 1, queue.FCFS)) }

func BenchmarkPushAndNext(b *testing.B) {
	for _, waiting := range []int{0, many} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			q := fresh(b, config())
			push(b, q, inALane(waiting, one)...)
			w := &queue.Waiter{Arrival: at(500), Tokens: 512}
			b.ReportAllocs()
			for b.Loop() {
				_ = q.Push(w, 1)
				w = q.Next(anybody)
			}
		})
	}
}

func BenchmarkPushAndRemove(b *testing.B) {
	q := fresh(b, config())
	push(b, q, inALane(many, one)...)
	w := &queue.Waiter{Arrival: at(500), Tokens: 512}
	b.ReportAllocs()
	for b.Loop() {
		_ = q.Push(w, 1)
		q.Remove(w)
	}
}

// BenchmarkFillAndDrain is of all 4,096, in one lane and in one each.
func BenchmarkFillAndDrain(b *testing.B) {
	for _, c := range []struct {
		name string
		lane func(int) string
	}{{"lanes=1", one}, {"lanes=4096", each}} {
		b.Run(c.name, func(b *testing.B) {
			ws := inALane(many, c.lane)
			q := fresh(b, config())
			b.ReportAllocs()
			for b.Loop() {
				push(b, q, ws...)
				for q.Next(anybody) != nil {
				}
			}
		})
	}
}

// BenchmarkBlockedLanes asks 4,096 lanes of which none, or only that of the last
// to come, may go.
func BenchmarkBlockedLanes(b *testing.B) {
	for _, free := range []bool{false, true} {
		b.Run(fmt.Sprintf("one_free=%v", free), func(b *testing.B) {
			q := fresh(b, config())
			push(b, q, inALane(many, each)...)
			w := &queue.Waiter{Lane: "free", Arrival: at(2000), Tokens: 512}
			may := func(w *queue.Waiter) bool { return w.Lane == "free" }
			b.ReportAllocs()
			for b.Loop() {
				if free {
					_ = q.Push(w, 1)
				}
				q.Next(may)
			}
		})
	}
}
