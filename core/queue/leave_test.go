package queue_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/queue"
)

func TestU2_100WaitAnd60Leave(t *testing.T) {
	q := fresh(t, queue.DefaultConfig())
	var ws []*queue.Waiter
	for i := range 100 {
		ws = append(ws, &queue.Waiter{Owner: fmt.Sprint(i), Arrival: at(float64(i)), Tokens: int64(i), Lane: []string{"", "w1", "w2"}[i%3]})
	}
	push(t, q, ws...)
	var want []string
	tokens := int64(0)
	for i, w := range ws {
		if i*7%10 < 6 { // from all over the lanes
			if !q.Remove(w) {
				t.Fatalf("%d was not there", i)
			}
			continue
		}
		want, tokens = append(want, fmt.Sprint(i)), tokens+int64(i)
	}
	if q.Len() != 40 {
		t.Errorf("%d wait; want 40", q.Len())
	}
	if diff := cmp.Diff(map[string][2]int64{"default": {40, tokens}}, waiting(q)); diff != "" {
		t.Errorf("waiting (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, drain(q, anybody)); diff != "" {
		t.Errorf("who went (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][2]int64{}, waiting(q)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestCallerDropWhileQueuedRemovesTheEntry(t *testing.T) {
	q := fresh(t, queue.DefaultConfig())
	gone, stays := &queue.Waiter{Owner: "gone", Tokens: 5}, &queue.Waiter{Owner: "stays", Tokens: 3}
	push(t, q, gone, stays)
	if !q.Remove(gone) || q.Remove(gone) {
		t.Error("want true, then false")
	}
	if got := q.Next(anybody); got != stays {
		t.Errorf("got %v", got.Owner)
	}
	if q.Remove(stays) {
		t.Error("removed one that had gone")
	}
	if q.Remove(&queue.Waiter{}) {
		t.Error("removed one that never came")
	}
	other := fresh(t, queue.DefaultConfig())
	push(t, other, stays)
	if q.Remove(stays) || other.Len() != 1 {
		t.Error("removed one of another queue")
	}
}

// TestWhoLeavesFromTheMiddleLeavesTheOrder is over lanes that are long and in no
// order of pushing.
func TestWhoLeavesFromTheMiddleLeavesTheOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	q := fresh(t, queue.DefaultConfig())
	for range 20 {
		var ws []*queue.Waiter
		for _, i := range rng.Perm(200) {
			w := &queue.Waiter{Owner: fmt.Sprintf("%03d", i), Arrival: at(float64(i)), Lane: []string{"", "w1"}[rng.IntN(8)/7]}
			push(t, q, w)
			ws = append(ws, w)
		}
		var want []string
		for _, w := range ws {
			if rng.IntN(2) == 0 {
				q.Remove(w)
				continue
			}
			want = append(want, w.Owner.(string))
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, drain(q, anybody)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}

func TestWhoIsPushedAgainStandsBehindItsEquals(t *testing.T) {
	q := fresh(t, queue.DefaultConfig())
	a, b := &queue.Waiter{Owner: "a"}, &queue.Waiter{Owner: "b"}
	push(t, q, a, b)
	q.Remove(a)
	push(t, q, a)
	if diff := cmp.Diff([]string{"b", "a"}, drain(q, anybody)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDeadlineExpiryWhileQueued is what the owner of a wait does when it ends: a
// due time that has passed removes nobody by itself.
func TestDeadlineExpiryWhileQueued(t *testing.T) {
	q := fresh(t, queue.DefaultConfig())
	a := &queue.Waiter{Owner: "a", Due: at(1)}
	b := &queue.Waiter{Owner: "b", Due: at(2)}
	push(t, q, b, a)
	if q.Next(nobody) != nil || q.Len() != 2 {
		t.Error("somebody left")
	}
	if !q.Remove(a) || q.Next(anybody) != b || q.Next(anybody) != nil {
		t.Error("b alone is left to go")
	}
}

func TestHeldOnesCountAndStandInNoLane(t *testing.T) {
	cfg := queue.DefaultConfig()
	cfg.Classes[0].Limits.Requests = 2
	q := fresh(t, cfg)
	first, second := &queue.Waiter{Owner: "first", Arrival: at(1), Tokens: 10}, &queue.Waiter{Owner: "second", Arrival: at(2), Tokens: 5}
	if err := q.Hold(first, 1); err != nil {
		t.Fatal(err)
	}
	if q.Backlog("", "") || q.Next(anybody) != nil {
		t.Error("a held one stands in a lane")
	}
	push(t, q, second)
	third := &queue.Waiter{Owner: "third", Arrival: at(0), Tokens: 1}
	for _, add := range []func(*queue.Waiter, int) error{q.Hold, q.Push} {
		if diff := cmp.Diff(&queue.FullError{Class: "default", Kind: "requests", Current: 2, Limit: 2}, add(third, 1)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(map[string][2]int64{"default": {2, 15}}, waiting(q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	q.Enter(first)
	q.Enter(first) // again: nothing
	if diff := cmp.Diff([]string{"first", "second"}, drain(q, anybody)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if q.Len() != 0 {
		t.Errorf("%d wait", q.Len())
	}
}

func TestEnterKeepsThePlaceOfTheHold(t *testing.T) {
	q := fresh(t, queue.DefaultConfig())
	held, pushed := &queue.Waiter{Owner: "held"}, &queue.Waiter{Owner: "pushed"} // both at the same time
	if err := q.Hold(held, 1); err != nil {
		t.Fatal(err)
	}
	push(t, q, pushed)
	held.Lane, held.Tokens = "w1", 7 // the session is bound by now
	q.Enter(held)
	if !q.Backlog("", "w1") {
		t.Error("not in the lane that it was given since")
	}
	if diff := cmp.Diff(map[string][2]int64{"default": {2, 7}}, waiting(q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if w := q.Next(anybody); w != held {
		t.Fatalf("got %v first", w.Owner)
	}
	q.Enter(held) // it could not go after all
	if diff := cmp.Diff([]string{"held", "pushed"}, drain(q, anybody)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnyHeldOneCanLeave(t *testing.T) {
	q := fresh(t, queue.DefaultConfig())
	var ws []*queue.Waiter
	for i := range 50 {
		ws = append(ws, &queue.Waiter{Owner: fmt.Sprint(i), Arrival: at(float64(i)), Tokens: 2})
		if err := q.Hold(ws[i], 1); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for i, w := range ws {
		switch i % 3 {
		case 0:
			if !q.Remove(w) || q.Remove(w) {
				t.Fatalf("%d: want true, then false", i)
			}
		case 1:
			q.Enter(w)
			want = append(want, fmt.Sprint(i))
		}
	}
	if diff := cmp.Diff(map[string][2]int64{"default": {33, 66}}, waiting(q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, drain(q, anybody)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if q.Len() != 16 {
		t.Errorf("%d are held; want 16", q.Len())
	}
}

func TestAWaiterIsInOnePlaceAtATime(t *testing.T) {
	q := fresh(t, queue.DefaultConfig())
	w := &queue.Waiter{Tokens: 4}
	for _, put := range []func(*queue.Waiter, int) error{q.Hold, q.Hold, q.Push} {
		if err := put(w, 1); err != nil {
			t.Fatal(err)
		}
		if q.Len() != 1 || q.Backlog("", "") {
			t.Fatalf("%d wait, backlog %v", q.Len(), q.Backlog("", ""))
		}
	}
	if !q.Remove(w) || q.Len() != 0 {
		t.Error("still there")
	}
}

func TestConfigureKeepsWhoWaits(t *testing.T) {
	q := fresh(t, classes(class("default", 1, queue.FCFS), class("old", 1, queue.FCFS), class("kept", 1, queue.FCFS)))
	held := &queue.Waiter{Owner: "held", Class: "old", Arrival: at(2), Tokens: 2}
	push(t, q,
		&queue.Waiter{Owner: "d0", Arrival: at(0), Tokens: 90}, &queue.Waiter{Owner: "d4", Arrival: at(4), Tokens: 10},
		&queue.Waiter{Owner: "o1", Class: "old", Arrival: at(1), Tokens: 60}, &queue.Waiter{Owner: "o3", Class: "old", Lane: "w1", Arrival: at(3), Tokens: 40},
		&queue.Waiter{Owner: "k9", Class: "kept", Arrival: at(9), Tokens: 1}, &queue.Waiter{Owner: "k8", Class: "kept", Arrival: at(8), Tokens: 5})
	if err := q.Hold(held, 1); err != nil {
		t.Fatal(err)
	}
	before := q.Class("kept")
	kept := class("kept", 10, queue.WSPT)
	kept.Timeout = time.Second
	full := class("default", 1, queue.FCFS)
	full.Limits = queue.Limits{}
	q.Configure(classes(kept, full))
	if diff := cmp.Diff(map[string][2]int64{"default": {5, 202}, "kept": {2, 6}}, waiting(q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if before.Order != queue.FCFS || before.Timeout != time.Minute {
		t.Error("a class that was handed out has changed")
	}
	if got := q.Class("kept").Timeout; got != time.Second {
		t.Errorf("timeout %v", got)
	}
	if got := q.Class("old").Name; got != "default" {
		t.Errorf("class %q", got)
	}
	refused := q.Push(&queue.Waiter{}, 1)
	if diff := cmp.Diff(&queue.FullError{Class: "default", Kind: "requests", Current: 5}, refused); diff != "" {
		t.Errorf("the new limit (-want +got):\n%s", diff)
	}
	q.Enter(held) // never refused
	notKept := func(w *queue.Waiter) bool { return w.Class != "kept" }
	if diff := cmp.Diff([]string{"d0", "o1", "held", "o3", "d4"}, drain(q, notKept)); diff != "" {
		t.Errorf("default (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"k9", "k8"}, drain(q, anybody)); diff != "" {
		t.Errorf("the shortest first from now on (-want +got):\n%s", diff)
	}
}

// TestAQueueOfNoConfigHasTheDefaultClass: nothing panics where nobody validated.
func TestAQueueOfNoConfigHasTheDefaultClass(t *testing.T) {
	for _, cfg := range []queue.Config{{}, {Classes: []queue.Class{{Name: "x", Limits: unlimited()}}}} {
		q := queue.New(cfg)
		push(t, q, &queue.Waiter{Owner: "a"}, &queue.Waiter{Owner: "b", Class: "x"})
		if n := len(drain(q, anybody)); n != 2 {
			t.Errorf("%d went", n)
		}
		if diff := cmp.Diff(queue.DefaultConfig().Classes[0], *q.Class("")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
