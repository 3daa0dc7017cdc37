package reserve_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/reserve"
)

var start = time.Unix(1_000_000, 0)

func TestR5_ExpiryReleasesWhatIsDue(t *testing.T) {
	var book reserve.Book
	var bs []*booking
	for i := range 10 {
		_, b := insertUntil(t, &book, fmt.Sprint("r", i), start.Add(2*time.Second))
		bs = append(bs, b)
	}
	_, own := insert(t, &book, "own")
	_, later := insertUntil(t, &book, "later", start.Add(3*time.Second))
	if n := book.Expire(start.Add(2*time.Second - 1)); n != 0 || book.Len() != 12 {
		t.Errorf("%d expired before their time, %d left", n, book.Len())
	}
	if n := book.Expire(start.Add(2 * time.Second)); n != 10 || book.Len() != 2 {
		t.Errorf("%d expired, %d left", n, book.Len())
	}
	for _, b := range bs {
		if diff := cmp.Diff([]string{"drop expired"}, b.noted()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if n := book.Expire(start.Add(1000 * time.Hour)); n != 1 || len(later.noted()) != 1 || len(own.noted()) != 0 {
		t.Errorf("%d expired; calls %v, %v", n, later.noted(), own.noted())
	}
}

func TestProgressDoesNotExtendTheTime(t *testing.T) {
	var book reserve.Book
	r, b := insertUntil(t, &book, "a", start.Add(time.Second))
	r.FirstToken(start.Add(500 * time.Millisecond))
	r.OutputBlocks(1)
	if n := book.Expire(start.Add(time.Second)); n != 1 || !b.last.FirstToken.Equal(start.Add(500*time.Millisecond)) {
		t.Errorf("%d expired, outcome %+v", n, b.last)
	}
}

func TestExpiryGoesByTimeThenID(t *testing.T) {
	var book reserve.Book
	var order []string
	for i, id := range []string{"c", "a", "e", "b", "d"} {
		_, b := insertUntil(t, &book, id, start.Add(time.Duration(i/2)*time.Second))
		b.dropped = func() { order = append(order, id) }
	}
	book.Expire(start.Add(time.Minute))
	if diff := cmp.Diff([]string{"a", "c", "b", "e", "d"}, order); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNoLockIsHeldWhileExpiredOnesAreReleased(t *testing.T) {
	var book reserve.Book
	second, _ := insertUntil(t, &book, "b", start.Add(1))
	_, first := insertUntil(t, &book, "a", start)
	first.dropped = func() {
		insertUntil(t, &book, "c", start) // due at once, but after this sweep began
		second.Release(reserve.Outcome{Kind: reserve.Completed})
		book.Find("b")
	}
	if n := book.Expire(start.Add(time.Second)); n != 1 || book.Len() != 1 {
		t.Errorf("%d expired, %d left; the second was its owner's, the third is for the next sweep", n, book.Len())
	}
	if n := book.Expire(start.Add(time.Second)); n != 1 || book.Len() != 0 {
		t.Errorf("%d expired, %d left", n, book.Len())
	}
}

func TestExpiredIDIsFreeForTheNext(t *testing.T) {
	var book reserve.Book
	old, _ := insertUntil(t, &book, "a", start)
	book.Expire(start)
	next, b := insertUntil(t, &book, "a", start.Add(time.Hour))
	old.OutputBlocks(1)
	if old.Release(reserve.Outcome{Kind: reserve.Completed}) || len(b.noted()) != 0 {
		t.Error("a late call of the expired one touched its successor")
	}
	if n := book.Expire(start.Add(time.Minute)); n != 0 || next.Released() {
		t.Error("the successor went with the old one's time")
	}
}

func TestNothingDueCostsNothing(t *testing.T) {
	var book reserve.Book
	for i := range 10_000 {
		insertUntil(t, &book, fmt.Sprint(i), start.Add(time.Hour))
	}
	if n := testing.AllocsPerRun(100, func() { book.Expire(start) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The book against a plain map, by random steps.
func TestBookEqualsAPlainModel(t *testing.T) {
	type row struct {
		r       *reserve.Reservation
		b       *booking
		expires time.Time
	}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var book reserve.Book
		model := map[string]row{}
		now := start
		var script []string
		for range 200 {
			id := fmt.Sprint(rng.IntN(12))
			row0, taken := model[id]
			switch op := rng.IntN(5); op {
			case 0, 1:
				claim, ok := book.Claim(id)
				script = append(script, "claim "+id)
				if ok == taken {
					t.Fatalf("seed %d: claim %v while taken is %v\n%s", seed, ok, taken, strings.Join(script, "\n"))
				}
				if !ok {
					continue
				}
				if rng.IntN(4) == 0 {
					claim.Abandon()
					continue
				}
				made := row{b: &booking{}}
				if rng.IntN(4) != 0 {
					made.expires = now.Add(time.Duration(rng.IntN(50)) * time.Second)
				}
				made.r = claim.Insert(reserve.Key{SelectionID: id}, made.b, reserve.Terms{Expires: made.expires})
				model[id] = made
			case 2:
				found, ok := book.Find(id)
				script = append(script, "free "+id)
				if ok != taken || found != row0.r {
					t.Fatalf("seed %d: found %v, want %v\n%s", seed, ok, taken, strings.Join(script, "\n"))
				}
				if ok {
					found.Release(reserve.Outcome{Kind: reserve.Completed})
					delete(model, id)
				}
			default:
				now = now.Add(time.Duration(rng.IntN(10)) * time.Second)
				script = append(script, "expire "+now.Sub(start).String())
				want := 0
				for id, row := range model {
					if !row.expires.IsZero() && !row.expires.After(now) {
						want++
						delete(model, id)
					}
				}
				if got := book.Expire(now); got != want {
					t.Fatalf("seed %d: %d expired, want %d\n%s", seed, got, want, strings.Join(script, "\n"))
				}
			}
			if book.Len() != len(model) {
				t.Fatalf("seed %d: %d live, want %d\n%s", seed, book.Len(), len(model), strings.Join(script, "\n"))
			}
		}
	}
}

func TestExactlyOneReleaseUnderARace(t *testing.T) {
	const callers, each, ids = 16, 400, 8
	var book reserve.Book
	var made, dropped, released atomic.Int64
	var now atomic.Int64
	var all sync.Map // *booking → nil
	release := func(r *reserve.Reservation, k reserve.Kind) {
		if r.Release(reserve.Outcome{Kind: k}) {
			released.Add(1)
		}
	}
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			for range each {
				id := fmt.Sprint(rng.IntN(ids))
				if claim, ok := book.Claim(id); ok {
					b := &booking{dropped: func() { dropped.Add(1) }}
					all.Store(b, nil)
					made.Add(1)
					r := claim.Insert(reserve.Key{SelectionID: id}, b, reserve.Terms{Expires: start.Add(time.Duration(now.Load()))})
					r.FirstToken(start)
					if rng.IntN(2) == 0 {
						go release(r, reserve.Withdrawn)
					}
				} else if r, ok := book.Find(id); ok {
					r.OutputBlocks(1)
					_ = r.OutputBlock(1, new(0.5)) // a good fraction is never refused
					release(r, reserve.Completed)
				}
				released.Add(int64(book.Expire(start.Add(time.Duration(now.Add(1) - 20)))))
			}
		})
	}
	wg.Wait()
	released.Add(int64(book.Expire(start.Add(time.Hour))))
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for released.Load() != made.Load() || book.Len() != 0 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d made, %d released, %d left", made.Load(), released.Load(), book.Len())
		}
	}
	if made.Load() != dropped.Load() || made.Load() < ids {
		t.Errorf("%d made, %d dropped", made.Load(), dropped.Load())
	}
	all.Range(func(key, _ any) bool {
		b, _ := key.(*booking)
		drops := slices.DeleteFunc(b.noted(), func(s string) bool { return !strings.HasPrefix(s, "drop ") })
		if len(drops) != 1 {
			t.Errorf("dropped as %v", drops)
		}
		return true
	})
}

func BenchmarkClaimInsertRelease(b *testing.B) {
	for _, live := range []int{0, 100_000} {
		b.Run(fmt.Sprint("live=", live), func(b *testing.B) {
			var book reserve.Book
			for i := range live {
				c, _ := book.Claim(fmt.Sprint(i))
				c.Insert(reserve.Key{}, silent{}, reserve.Terms{Expires: start.Add(time.Duration(i) * time.Millisecond)})
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				c, _ := book.Claim("x")
				i++
				r := c.Insert(reserve.Key{}, silent{}, reserve.Terms{Expires: start.Add(time.Duration(i%100_000) * time.Millisecond)})
				book.Expire(start.Add(-1))
				r.Release(reserve.Outcome{Kind: reserve.Completed})
			}
		})
	}
}

// silent is a booking without effect.
type silent struct{}

func (silent) PrefillComplete(time.Time) {}
func (silent) AddBlocks(int, *float64)   {}
func (silent) Drop(reserve.Outcome)      {}
