package queue_test

import (
	"testing"
	"time"

	"github.com/routerd/routerd/core/queue"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at is some seconds after the start.
func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

func unlimited() queue.Limits {
	return queue.Limits{Requests: queue.Unlimited, Tokens: queue.Unlimited, CachedTokens: queue.Unlimited}
}

func class(name string, weight int, order queue.Order) queue.Class {
	return queue.Class{Name: name, Weight: weight, Order: order, Limits: unlimited(), Timeout: time.Minute}
}

func classes(cl ...queue.Class) queue.Config {
	cfg := queue.DefaultConfig()
	cfg.Classes = cl
	return cfg
}

func fresh(t testing.TB, cfg queue.Config) *queue.Queue {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return queue.New(cfg)
}

func push(t testing.TB, q *queue.Queue, ws ...*queue.Waiter) {
	t.Helper()
	for _, w := range ws {
		if err := q.Push(w, 1); err != nil {
			t.Fatal(err)
		}
	}
}

func anybody(*queue.Waiter) bool { return true }

func nobody(*queue.Waiter) bool { return false }

// drain takes out all that may go and names them by their owners.
func drain(q *queue.Queue, may func(*queue.Waiter) bool) []string {
	var names []string
	for w := q.Next(may); w != nil; w = q.Next(may) {
		names = append(names, w.Owner.(string))
	}
	return names
}

// waiting is what Waiting tells, for the classes in which somebody waits.
func waiting(q *queue.Queue) map[string][2]int64 {
	all := map[string][2]int64{}
	q.Waiting(func(class string, requests int, tokens int64) {
		if requests != 0 || tokens != 0 {
			all[class] = [2]int64{int64(requests), tokens}
		}
	})
	return all
}
