package reserve_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// booking notes what happens to it.
type booking struct {
	mu      sync.Mutex
	calls   []string
	last    reserve.Outcome
	dropped func() // called by Drop; may be nil
}

func (b *booking) note(s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, s)
}

func (b *booking) noted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

func (b *booking) PrefillComplete(now time.Time) { b.note(fmt.Sprint("prefill ", now.Unix())) }

func (b *booking) AddBlocks(n int, fraction *float64) {
	if fraction == nil {
		b.note(fmt.Sprint("blocks ", n))
		return
	}
	b.note(fmt.Sprint("blocks ", n, " weigh ", *fraction))
}

func (b *booking) Drop(o reserve.Outcome) {
	b.note("drop " + string(o.Kind))
	b.last = o
	if b.dropped != nil {
		b.dropped()
	}
}

func insert(t *testing.T, book *reserve.Book, id string) (*reserve.Reservation, *booking) {
	t.Helper()
	return insertUntil(t, book, id, time.Time{})
}

// insertUntil makes a reservation that expires; the zero time makes one that does not.
func insertUntil(t *testing.T, book *reserve.Book, id string, expires time.Time) (*reserve.Reservation, *booking) {
	t.Helper()
	claim, ok := book.Claim(id)
	if !ok {
		t.Fatalf("id %q is in use", id)
	}
	b := &booking{}
	return claim.Insert(reserve.Key{SelectionID: id}, b, reserve.Terms{Expires: expires}), b
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
	if err := r.OutputBlock(1, new(0.5)); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"prefill 7", "blocks 2", "drop completed"}, b.noted()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := (reserve.Outcome{Kind: reserve.Completed, FirstToken: first}); !b.last.FirstToken.Equal(first) || b.last.Kind != want.Kind {
		t.Errorf("got %+v; want %+v", b.last, want)
	}
	if !r.Released() || r.Key().SelectionID != "a" {
		t.Errorf("got %v, %v", r.Released(), r.Key())
	}
}

// Upstream: prefill_complete_is_idempotent.
func TestPrefillCompleteIsIdempotent(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(r *reserve.Reservation)
		want []string
	}{
		{"told twice", func(r *reserve.Reservation) { r.PrefillComplete(); r.PrefillComplete() }, nil},
		{"first token, then told", func(r *reserve.Reservation) { r.FirstToken(time.Unix(9, 0)); r.PrefillComplete() }, []string{"prefill 9"}},
		{"told, then first token", func(r *reserve.Reservation) { r.PrefillComplete(); r.FirstToken(time.Unix(9, 0)) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var book reserve.Book
			r, b := insert(t, &book, "a")
			c.do(r)
			got := b.noted()
			if len(got) != 1 || c.want != nil && !slices.Equal(got, c.want) {
				t.Errorf("got %v; want one call, %v", got, c.want)
			}
		})
	}
}

// Upstream: same_selection_id_in_two_partitions_is_a_conflict. Also R4: of two
// claims of one id, one has it.
func TestSameSelectionIDInTwoPartitionsIsAConflict(t *testing.T) {
	var book reserve.Book
	claim, _ := book.Claim("a")
	first := claim.Insert(reserve.Key{SelectionID: "a", Partition: fleet.PartitionKey{Model: "m1", Group: "g"}}, &booking{}, reserve.Terms{})
	if _, ok := book.Claim("a"); ok {
		t.Error("the id was claimed for a second partition")
	}
	if found, ok := book.Find("a"); !ok || found != first || found.Key().Partition.Model != "m1" || found.Released() {
		t.Errorf("the first was touched: %v, %v", found, ok)
	}
}

func TestR2_FreedTwiceAndReservedAgain(t *testing.T) {
	var book reserve.Book
	free := func() bool {
		r, ok := book.Find("r1")
		return ok && r.Release(reserve.Outcome{Kind: reserve.Completed})
	}
	var got []any
	insert(t, &book, "r1")
	got = append(got, book.Len(), free(), book.Len(), free(), book.Len())
	insert(t, &book, "r1")
	got = append(got, book.Len(), free(), book.Len())
	if diff := cmp.Diff([]any{1, true, 0, false, 0, 1, true, 0}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestR4_OfTwoThatClaimOneHasIt(t *testing.T) {
	var book reserve.Book
	for i := range 100 {
		var won atomic.Int64
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if c, ok := book.Claim(fmt.Sprint(i)); ok {
					won.Add(1)
					c.Insert(reserve.Key{}, &booking{}, reserve.Terms{})
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("pair %d: %d won", i, won.Load())
		}
	}
	if book.Len() != 100 {
		t.Errorf("%d reservations; want 100", book.Len())
	}
}

func TestR6_LifecycleCallsKnowOnlyLiveReservations(t *testing.T) {
	var book reserve.Book
	found := func() bool { _, ok := book.Find("a"); return ok }
	before := found()
	claim, _ := book.Claim("a")
	claimed := found()
	b := &booking{}
	r := claim.Insert(reserve.Key{SelectionID: "a"}, b, reserve.Terms{})
	live := found()
	b.dropped = func() {
		if found() {
			t.Error("found while it is being released")
		}
		if _, ok := book.Claim("a"); ok {
			t.Error("claimed before the booking was dropped")
		}
	}
	r.Release(reserve.Outcome{Kind: reserve.Completed})
	if diff := cmp.Diff([]bool{false, false, true, false}, []bool{before, claimed, live, found()}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestR6_DecayFractionIsFromZeroToOne(t *testing.T) {
	var book reserve.Book
	r, b := insert(t, &book, "a")
	for _, f := range []float64{1.5, math.NaN(), -1, math.Inf(1), math.Inf(-1), math.Nextafter(1, 2), -math.SmallestNonzeroFloat64} {
		fe, ok := errors.AsType[*fleet.FieldError](r.OutputBlock(1, &f))
		if !ok || fe.Field != "decay_fraction" || fe.Allowed != "0 to 1" || fe.Value == "" {
			t.Errorf("%v: got %v", f, fe)
		}
	}
	if got := b.noted(); got != nil {
		t.Errorf("a refused fraction did %v", got)
	}
	for _, f := range []*float64{nil, new(0.0), new(0.5), new(1.0)} {
		if err := r.OutputBlock(1, f); err != nil {
			t.Error(err)
		}
	}
	for _, f := range []*float64{nil, new(0.25)} {
		if err := r.OutputBlock(-3, f); err != nil {
			t.Error(err)
		}
	}
	want := []string{"blocks 1", "blocks 1 weigh 0", "blocks 1 weigh 0.5", "blocks 1 weigh 1", "blocks 0 weigh 0.25"}
	if diff := cmp.Diff(want, b.noted()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.Release(reserve.Outcome{Kind: reserve.Completed})
	if err := r.OutputBlock(1, new(2.0)); err == nil {
		t.Error("a fraction out of range was not refused because the reservation had ended")
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
		if won.Load() != 1 || len(b.noted()) != 1 || book.Len() != 0 {
			t.Fatalf("%d releases, calls %v, %d left", won.Load(), b.noted(), book.Len())
		}
	}
}
