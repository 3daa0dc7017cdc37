package queue_test

import (
	"testing"

	"github.com/routerd/routerd/core/queue"
)

// backlog keeps so many of each class waiting and counts the dispatches and
// their tokens by class.
func backlog(t *testing.T, q *queue.Queue, tokens map[string]int64, dispatches int) (requests map[string]int, sent map[string]int64) {
	t.Helper()
	requests, sent = map[string]int{}, map[string]int64{}
	for class, n := range tokens {
		push(t, q, &queue.Waiter{Class: class, Tokens: n}, &queue.Waiter{Class: class, Tokens: n})
	}
	for range dispatches {
		w := q.Next(anybody)
		if w == nil {
			t.Fatal("nobody went")
		}
		requests[w.Class]++
		sent[w.Class] += w.Tokens
		push(t, q, w)
	}
	return requests, sent
}

func TestU4_WeightsShareWhatGoes(t *testing.T) {
	q := fresh(t, classes(class("default", 9, queue.FCFS), class("low", 1, queue.FCFS)))
	requests, _ := backlog(t, q, map[string]int64{"default": 512, "low": 512}, 2000)
	if share := float64(requests["low"]) / 2000; share < 0.07 || share > 0.13 {
		t.Errorf("the low class got %.1f %%; want 7 to 13", 100*share)
	}
}

func TestWeightedRoundRobinSharesHoldOver1000Pops(t *testing.T) {
	cases := []struct {
		name   string
		weight map[string]int
		tokens map[string]int64
	}{
		{"equal prompts", map[string]int{"default": 5, "b": 3, "c": 2}, map[string]int64{"default": 100, "b": 100, "c": 100}},
		{"prompts of one token", map[string]int{"default": 5, "b": 3, "c": 2}, map[string]int64{"default": 1, "b": 1, "c": 1}},
		{"unequal prompts share the tokens", map[string]int{"default": 5, "b": 3, "c": 2}, map[string]int64{"default": 300, "b": 70, "c": 1100}},
		{"large weights", map[string]int{"default": 10000, "b": 10000}, map[string]int64{"default": 900, "b": 100}},
		{"a large and a small weight", map[string]int{"default": 50, "b": 1}, map[string]int64{"default": 40, "b": 40}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := queue.DefaultConfig()
			cfg.Classes = nil
			whole := 0
			for _, name := range []string{"c", "default", "b"} {
				if w := c.weight[name]; w > 0 {
					cfg.Classes = append(cfg.Classes, class(name, w, queue.FCFS))
					whole += w
				}
			}
			_, sent := backlog(t, fresh(t, cfg), c.tokens, 1000)
			total := int64(0)
			for _, n := range sent {
				total += n
			}
			for name, w := range c.weight {
				want, got := float64(w)/float64(whole), float64(sent[name])/float64(total)
				if got < want-0.02 || got > want+0.02 {
					t.Errorf("class %s: %.3f of the tokens; want %.3f", name, got, want)
				}
			}
		})
	}
}

// TestClassesTakeTurnsWithinTheirShares: equal weights alternate, however large
// they are against the prompts.
func TestClassesTakeTurnsWithinTheirShares(t *testing.T) {
	q := fresh(t, classes(class("default", 1000, queue.FCFS), class("b", 1000, queue.FCFS)))
	for range 50 {
		push(t, q, &queue.Waiter{Class: "default", Tokens: 1}, &queue.Waiter{Class: "b", Tokens: 1})
	}
	last := ""
	for range 100 {
		w := q.Next(anybody)
		if w.Class == last {
			t.Fatalf("class %s went twice in a row", last)
		}
		last = w.Class
	}
}

func TestAClassWithoutABacklogSavesNothing(t *testing.T) {
	q := fresh(t, classes(class("default", 1, queue.FCFS), class("idle", 1, queue.FCFS)))
	one := &queue.Waiter{Class: "idle", Tokens: 1000}
	push(t, q, one)
	// Its share grows for as long as it waits, and is gone when it leaves.
	backlogged := func(n int) (idle int) {
		for range n {
			w := q.Next(func(w *queue.Waiter) bool { return w != one })
			if w.Class == "idle" {
				idle++
				continue
			}
			push(t, q, w)
		}
		return idle
	}
	push(t, q, &queue.Waiter{Tokens: 10}, &queue.Waiter{Tokens: 10})
	backlogged(500)
	q.Remove(one)
	backlogged(500)
	for range 300 {
		push(t, q, &queue.Waiter{Class: "idle", Tokens: 10})
	}
	if got := backlogged(200); got < 95 || got > 105 {
		t.Errorf("the class that comes back sent %d of 200; want about half", got)
	}
}

// TestAClassThatCannotGoSavesNothing: while all its heads are blocked, a class
// earns nothing, and the others get all there is.
func TestAClassThatCannotGoSavesNothing(t *testing.T) {
	q := fresh(t, classes(class("default", 1, queue.FCFS), class("blocked", 1, queue.FCFS)))
	for range 2000 {
		push(t, q, &queue.Waiter{Tokens: 10}, &queue.Waiter{Class: "blocked", Lane: "w1", Tokens: 10})
	}
	for range 1000 {
		if w := q.Next(func(w *queue.Waiter) bool { return w.Lane == "" }); w == nil || w.Class == "blocked" {
			t.Fatal("default goes alone")
		}
	}
	n := 0
	for range 200 {
		if q.Next(anybody).Class == "blocked" {
			n++
		}
	}
	if n < 98 || n > 102 {
		t.Errorf("the class that was blocked sent %d of 200; want half", n)
	}
}

func TestTheLargestPromptEndsInOneCall(t *testing.T) {
	q := fresh(t, classes(class("default", 1, queue.FCFS), class("b", 10000, queue.FCFS)))
	for _, tokens := range []int64{1 << 62, -5, 0} {
		push(t, q, &queue.Waiter{Tokens: tokens}, &queue.Waiter{Class: "b", Tokens: tokens})
	}
	if n := len(drainAny(q)); n != 6 {
		t.Errorf("%d went; want 6", n)
	}
	if got := waiting(q); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func drainAny(q *queue.Queue) (all []*queue.Waiter) {
	for w := q.Next(anybody); w != nil; w = q.Next(anybody) {
		all = append(all, w)
	}
	return all
}
