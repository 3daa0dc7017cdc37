package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/queue"
)

func TestOrderInsideAClass(t *testing.T) {
	cases := []struct {
		name  string
		order queue.Order
		ws    []*queue.Waiter
		want  string
	}{
		{"fcfs is the order of arrival, not of pushing", queue.FCFS, []*queue.Waiter{
			{Owner: "late", Arrival: at(2)}, {Owner: "early", Arrival: at(1)}, {Owner: "later", Arrival: at(3)},
		}, "early late later"},
		{"the order of pushing decides among equals", queue.FCFS, []*queue.Waiter{
			{Owner: "a"}, {Owner: "b"}, {Owner: "c"}, {Owner: "d"}, {Owner: "e"},
		}, "a b c d e"},
		{"strict priority before due time", queue.FCFS, []*queue.Waiter{
			{Owner: "due", Due: at(1)}, {Owner: "low", Priority: -1, Due: at(0)}, {Owner: "high", Priority: 1},
		}, "high due low"},
		{"those with a due time before those without, the earlier first", queue.FCFS, []*queue.Waiter{
			{Owner: "none", Arrival: at(0)}, {Owner: "second", Due: at(9), Arrival: at(1)}, {Owner: "first", Due: at(8), Arrival: at(2)},
		}, "first second none"},
		{"due time before the shortest prompt", queue.WSPT, []*queue.Waiter{
			{Owner: "short", Tokens: 1}, {Owner: "due", Tokens: 1000, Due: at(9)},
		}, "due short"},
		{"arrival among those due at once", queue.FCFS, []*queue.Waiter{
			{Owner: "late", Due: at(9), Arrival: at(2)}, {Owner: "early", Due: at(9), Arrival: at(1)},
		}, "early late"},
		{"priority_jump inside fcfs", queue.FCFS, []*queue.Waiter{
			{Owner: "older", Arrival: at(0)},
			{Owner: "old", Arrival: at(4)},
			{Owner: "jumps", Arrival: at(10), Jump: 7 * time.Second},
			{Owner: "falls", Arrival: at(5), Jump: -time.Minute},
		}, "older jumps old falls"},
		{"a jump to the same moment comes after who was there", queue.FCFS, []*queue.Waiter{
			{Owner: "jumps", Arrival: at(10), Jump: 10 * time.Second}, {Owner: "there", Arrival: at(0)},
		}, "there jumps"},
		{"fcfs tells arrivals apart that are a nanosecond apart", queue.FCFS, []*queue.Waiter{
			{Owner: "second", Arrival: at(0).Add(1)}, {Owner: "first", Arrival: at(0)},
		}, "first second"},
		{"fcfs does not look at tokens", queue.FCFS, []*queue.Waiter{
			{Owner: "long", Arrival: at(0), Tokens: 1000}, {Owner: "short", Arrival: at(1), Tokens: 1},
		}, "long short"},
		{"wspt picks the shortest uncached first", queue.WSPT, []*queue.Waiter{
			{Owner: "300", Arrival: at(0), Tokens: 300},
			{Owner: "100", Arrival: at(2), Tokens: 100},
			{Owner: "50 of 1000", Arrival: at(3), Tokens: 1000, Cached: 950},
		}, "50 of 1000 100 300"},
		{"wspt takes the jump as weight", queue.WSPT, []*queue.Waiter{
			{Owner: "100", Tokens: 100}, {Owner: "300", Tokens: 300, Jump: 3 * time.Second},
		}, "300 100"},
		{"wspt serves equals by arrival", queue.WSPT, []*queue.Waiter{
			{Owner: "late", Tokens: 7, Arrival: at(1)}, {Owner: "early", Tokens: 7, Arrival: at(0)},
		}, "early late"},
		{"wspt takes a prompt that is wholly cached as one token", queue.WSPT, []*queue.Waiter{
			{Owner: "two", Tokens: 2},
			{Owner: "cached", Tokens: 9, Cached: 9},
			{Owner: "more than all", Tokens: 9, Cached: 99},
			{Owner: "none", Tokens: 0},
		}, "cached more than all none two"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			q := fresh(t, classes(class("default", 1, c.order)))
			push(t, q, c.ws...)
			if diff := cmp.Diff(c.want, strings.Join(drain(q, anybody), " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestOrderHoldsAcrossLanes puts each into a lane of its own: all may go, so the
// class's order is that of one lane.
func TestOrderHoldsAcrossLanes(t *testing.T) {
	q := fresh(t, classes(class("default", 1, queue.FCFS)))
	push(t, q,
		&queue.Waiter{Owner: "c", Arrival: at(3)}, &queue.Waiter{Owner: "a", Lane: "w1", Arrival: at(1)},
		&queue.Waiter{Owner: "d", Lane: "w1", Arrival: at(4)}, &queue.Waiter{Owner: "b", Lane: "w2", Arrival: at(2)},
		&queue.Waiter{Owner: "first", Lane: "w2", Arrival: at(9), Priority: 1})
	if diff := cmp.Diff([]string{"first", "a", "b", "c", "d"}, drain(q, anybody)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPinnedLaneBlockedDoesNotBlockOtherLanes(t *testing.T) {
	q := fresh(t, queue.DefaultConfig())
	push(t, q,
		&queue.Waiter{Owner: "pinned", Lane: "w1", Arrival: at(0), Priority: 9},
		&queue.Waiter{Owner: "pinned after", Lane: "w1", Arrival: at(1), Priority: 5},
		&queue.Waiter{Owner: "other pin", Lane: "w2", Arrival: at(2)},
		&queue.Waiter{Owner: "free", Arrival: at(3)})
	asked := map[string]int{}
	got := drain(q, func(w *queue.Waiter) bool {
		asked[w.Owner.(string)]++
		return w.Lane != "w1"
	})
	if diff := cmp.Diff([]string{"other pin", "free"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if asked["pinned after"] != 0 {
		t.Error("asked for one that stands behind its lane's head")
	}
	if diff := cmp.Diff([]string{"pinned", "pinned after"}, drain(q, anybody)); diff != "" {
		t.Errorf("in the lane (-want +got):\n%s", diff)
	}
}

func TestEachLanesHeadIsAskedForAtMostOnce(t *testing.T) {
	q := fresh(t, classes(class("default", 1, queue.FCFS), class("b", 3, queue.WSPT)))
	for i := range 100 {
		lane := string(rune('A' + i%20))
		push(t, q, &queue.Waiter{Class: []string{"", "b"}[i%2], Lane: lane, Tokens: int64(i % 7), Arrival: at(float64(i * 31 % 100)), Owner: lane})
	}
	asked := map[*queue.Waiter]int{}
	if w := q.Next(func(w *queue.Waiter) bool { asked[w]++; return false }); w != nil {
		t.Errorf("got %v; none may go", w.Owner)
	}
	for w, n := range asked {
		if n != 1 {
			t.Errorf("%s: asked %d times", w.Lane, n)
		}
	}
	if len(asked) != 20 {
		t.Errorf("%d heads were asked for; there are 20 lanes", len(asked))
	}
	if q.Len() != 100 {
		t.Errorf("%d wait; want 100", q.Len())
	}
}

func TestBacklogIsOfOneLaneOfOneClass(t *testing.T) {
	q := fresh(t, classes(class("default", 1, queue.FCFS), class("b", 1, queue.FCFS)))
	pinned, free := &queue.Waiter{Lane: "w1"}, &queue.Waiter{Class: "b"}
	push(t, q, pinned, free)
	for _, c := range []struct {
		class, lane string
		want        bool
	}{
		{"", "w1", true},
		{"default", "w1", true},
		{"unknown", "w1", true},
		{"", "w2", false},
		{"", "", false},
		{"b", "", true},
		{"b", "w1", false},
	} {
		if got := q.Backlog(c.class, c.lane); got != c.want {
			t.Errorf("class %q lane %q: got %v", c.class, c.lane, got)
		}
	}
	q.Remove(pinned)
	q.Next(anybody)
	if q.Backlog("", "w1") || q.Backlog("b", "") {
		t.Error("an empty lane has a backlog")
	}
}
