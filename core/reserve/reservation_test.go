package reserve_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/reserve"
)

// booking notes what happens to it.
type booking struct {
	mu    sync.Mutex
	calls []string
	last  reserve.Outcome
}

func (b *booking) note(s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, s)
}

func (b *booking) PrefillComplete(time.Time) { b.note("prefill") }
func (b *booking) AddBlocks(int, *float64)   { b.note("blocks") }
func (b *booking) Drop(o reserve.Outcome)    { b.note("drop"); b.last = o }

func insert(t *testing.T, book *reserve.Book, id string) (*reserve.Reservation, *booking) {
	t.Helper()
	claim, ok := book.Claim(id)
	if !ok {
		t.Fatalf("id %q is in use", id)
	}
	b := &booking{}
	return claim.Insert(reserve.Key{SelectionID: id}, b, reserve.Terms{}), b
}

func TestIDIsFreeAfterAbandonOrRelease(t *testing.T) {
	var book reserve.Book
	claim, _ := book.Claim("a")
	if _, ok := book.Claim("a"); ok {
		t.Error("a claimed id was claimed again")
	}
	claim.Abandon()
	r, _ := insert(t, &book, "a")
	if _, ok := book.Claim("a"); ok || book.Len() != 1 {
		t.Errorf("a reserved id was claimed again; %d reservations", book.Len())
	}
	r.Release(reserve.Outcome{Kind: reserve.Failed})
	next, _ := insert(t, &book, "a")
	if r.Release(reserve.Outcome{Kind: reserve.Completed}) || book.Len() != 1 {
		t.Error("a late release touched the next reservation of its id")
	}
	next.Release(reserve.Outcome{Kind: reserve.Completed})
	if book.Len() != 0 {
		t.Errorf("%d reservations left", book.Len())
	}
}

func TestEventsInOrder(t *testing.T) {
	var book reserve.Book
	r, b := insert(t, &book, "a")
	first := time.Unix(7, 0)
	r.OutputBlocks(0)
	r.FirstToken(first)
	r.FirstToken(first.Add(time.Second))
	r.OutputBlocks(2)
	r.Release(reserve.Outcome{Kind: reserve.Completed})
	r.PrefillComplete()
	r.OutputBlocks(1)
	r.FirstToken(first)
	if diff := cmp.Diff([]string{"prefill", "blocks", "drop"}, b.calls); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := (reserve.Outcome{Kind: reserve.Completed, FirstToken: first}); !b.last.FirstToken.Equal(first) || b.last.Kind != want.Kind {
		t.Errorf("got %+v; want %+v", b.last, want)
	}
	if !r.Released() || r.Key().SelectionID != "a" {
		t.Errorf("got %v, %v", r.Released(), r.Key())
	}
}

func TestOneReleaseWhoeverComesFirst(t *testing.T) {
	var book reserve.Book
	for range 200 {
		r, b := insert(t, &book, "a")
		var won atomic.Int64
		var wg sync.WaitGroup
		for _, k := range []reserve.Kind{reserve.Completed, reserve.Cancelled, reserve.Expired, reserve.Withdrawn} {
			wg.Go(func() {
				if r.Release(reserve.Outcome{Kind: k}) {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || len(b.calls) != 1 || book.Len() != 0 {
			t.Fatalf("%d releases, calls %v, %d left", won.Load(), b.calls, book.Len())
		}
	}
}
