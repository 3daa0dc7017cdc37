package queue_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/queue"
)

// pushUntilFull pushes copies of w until one is refused.
func pushUntilFull(t *testing.T, q *queue.Queue, w queue.Waiter, workers int) (int, *queue.FullError) {
	t.Helper()
	for n := range 1000 {
		next := w
		if err := q.Push(&next, workers); err != nil {
			full, ok := errors.AsType[*queue.FullError](err)
			if !ok {
				t.Fatalf("got %v; want a FullError", err)
			}
			return n, full
		}
	}
	return 1000, nil
}

func TestEachLimitBites(t *testing.T) {
	limits := func(change func(*queue.Limits)) queue.Limits {
		l := unlimited()
		change(&l)
		return l
	}
	cases := []struct {
		name    string
		limits  queue.Limits
		workers int
		want    int
		full    *queue.FullError
	}{
		{"requests", limits(func(l *queue.Limits) { l.Requests = 2 }), 1, 2, &queue.FullError{Class: "c", Kind: "requests", Current: 2, Limit: 2}},
		{"rejection limits scale with worker count", limits(func(l *queue.Limits) { l.Requests = 2 }), 5, 10, &queue.FullError{Class: "c", Kind: "requests", Current: 10, Limit: 10}},
		{"tokens", limits(func(l *queue.Limits) { l.Tokens = 250 }), 1, 3, &queue.FullError{Class: "c", Kind: "tokens", Current: 300, Limit: 250}},
		{"tokens exactly", limits(func(l *queue.Limits) { l.Tokens = 200 }), 1, 2, &queue.FullError{Class: "c", Kind: "tokens", Current: 200, Limit: 200}},
		{"one long prompt may wait alone", limits(func(l *queue.Limits) { l.Tokens = 1 }), 1, 1, &queue.FullError{Class: "c", Kind: "tokens", Current: 100, Limit: 1}},
		{"tokens by worker", limits(func(l *queue.Limits) { l.Tokens = 250 }), 4, 10, &queue.FullError{Class: "c", Kind: "tokens", Current: 1000, Limit: 1000}},
		{"cached tokens", limits(func(l *queue.Limits) { l.CachedTokens = 80 }), 1, 2, &queue.FullError{Class: "c", Kind: "cached_tokens", Current: 80, Limit: 80}},
		{"cached tokens by worker", limits(func(l *queue.Limits) { l.CachedTokens = 80 }), 2, 4, &queue.FullError{Class: "c", Kind: "cached_tokens", Current: 160, Limit: 160}},
		{"zero requests", limits(func(l *queue.Limits) { l.Requests = 0 }), 9, 0, &queue.FullError{Class: "c", Kind: "requests"}},
		{"zero tokens", limits(func(l *queue.Limits) { l.Tokens = 0 }), 9, 0, &queue.FullError{Class: "c", Kind: "tokens"}},
		{"zero cached tokens", limits(func(l *queue.Limits) { l.CachedTokens = 0 }), 9, 0, &queue.FullError{Class: "c", Kind: "cached_tokens"}},
		{"no worker is no limit of zero", limits(func(l *queue.Limits) { l.Requests = 2 }), 0, 2, &queue.FullError{Class: "c", Kind: "requests", Current: 2, Limit: 2}},
		{"a limit beyond all numbers", limits(func(l *queue.Limits) { l.Requests = math.MaxInt64 }), 1000, 1000, nil},
		{"unlimited", unlimited(), 1, 1000, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			limited := class("c", 1, queue.FCFS)
			limited.Limits = c.limits
			q := fresh(t, classes(class("default", 1, queue.FCFS), limited))
			push(t, q, &queue.Waiter{Tokens: 1 << 30, Cached: 1 << 30}) // of another class
			n, full := pushUntilFull(t, q, queue.Waiter{Class: "c", Tokens: 100, Cached: 40}, c.workers)
			if n != c.want {
				t.Errorf("%d may wait; want %d", n, c.want)
			}
			if diff := cmp.Diff(c.full, full); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if q.Len() != 1+c.want {
				t.Errorf("%d wait: a refused one was counted", q.Len())
			}
		})
	}
}

func TestWhoLeavesMakesRoom(t *testing.T) {
	cfg := queue.DefaultConfig()
	cfg.Classes[0].Limits = queue.Limits{Requests: 2, Tokens: queue.Unlimited, CachedTokens: queue.Unlimited}
	q := fresh(t, cfg)
	a, b, c := &queue.Waiter{}, &queue.Waiter{}, &queue.Waiter{}
	push(t, q, a, b)
	if err := q.Push(c, 1); err == nil {
		t.Fatal("the third may not wait")
	}
	q.Remove(a)
	push(t, q, c)
	if w := q.Next(anybody); w != b {
		t.Fatal("the older goes first")
	}
	push(t, q, a)
}

func TestTokensBelowZeroCountAsNone(t *testing.T) {
	q := fresh(t, queue.DefaultConfig())
	w := &queue.Waiter{Tokens: -7, Cached: -9}
	push(t, q, w, &queue.Waiter{Tokens: 5})
	if diff := cmp.Diff(map[string][2]int64{"default": {2, 5}}, waiting(q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAFullErrorSaysHowFull(t *testing.T) {
	got := (&queue.FullError{Class: "batch", Kind: queue.KindCachedTokens, Current: 12, Limit: 10}).Error()
	if want := `queue class "batch" is full: 12 cached_tokens wait, at most 10 may`; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}
