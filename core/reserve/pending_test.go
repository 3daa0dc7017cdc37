package reserve_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

func pendingKey(id string) reserve.PendingKey {
	return reserve.PendingKey{Partition: fleet.PartitionKey{Model: "m", Group: "g"}, ID: id}
}

func TestR7_BoundsOfPendingSelectionsAreNamed(t *testing.T) {
	good := reserve.DefaultPendingConfig()
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(reserve.PendingConfig{TTL: 2 * time.Minute, Entries: 4096, Bytes: 268_435_456}, good); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const year = 31_536_000 * time.Second
	for _, c := range []struct {
		field string
		cfg   reserve.PendingConfig
	}{
		{"ttl", reserve.PendingConfig{TTL: 0, Entries: 1, Bytes: 1 << 20}},
		{"ttl", reserve.PendingConfig{TTL: -1, Entries: 1, Bytes: 1 << 20}},
		{"ttl", reserve.PendingConfig{TTL: math.MinInt64, Entries: 1, Bytes: 1 << 20}},
		{"ttl", reserve.PendingConfig{TTL: year + 1, Entries: 1, Bytes: 1 << 20}},
		{"ttl", reserve.PendingConfig{TTL: math.MaxInt64, Entries: 1, Bytes: 1 << 20}},
		{"entries", reserve.PendingConfig{TTL: time.Minute, Entries: 0, Bytes: 1 << 20}},
		{"entries", reserve.PendingConfig{TTL: time.Minute, Entries: -1, Bytes: 1 << 20}},
		{"entries", reserve.PendingConfig{TTL: time.Minute, Entries: 1<<20 + 1, Bytes: 1 << 20}},
		{"bytes", reserve.PendingConfig{TTL: time.Minute, Entries: 1, Bytes: 0}},
		{"bytes", reserve.PendingConfig{TTL: time.Minute, Entries: 1, Bytes: math.MaxInt64}},
	} {
		if fe, ok := errors.AsType[*fleet.FieldError](c.cfg.Validate()); !ok || fe.Field != c.field || fe.Allowed == "" {
			t.Errorf("%+v: got %v; want a refusal of %s", c.cfg, fe, c.field)
		}
	}
	for _, ttl := range []time.Duration{time.Second, year} {
		if err := (reserve.PendingConfig{TTL: ttl, Entries: 1, Bytes: 1024}).Validate(); err != nil {
			t.Error(err)
		}
	}
}

// Upstream: failed_cached_booking_is_retryable.
func TestFailedCachedBookingIsRetryable(t *testing.T) {
	p := reserve.NewPending[*int](reserve.DefaultPendingConfig())
	k, v := pendingKey("a"), new(1)
	p.Put(k, v, 10, start)
	for range 2 { // the booking fails once
		if got, ok := p.Peek(k, start); !ok || got != v {
			t.Fatalf("got %v, %v", got, ok)
		}
	}
	if !p.Consume(k, v) {
		t.Error("not there to be consumed")
	}
	if _, ok := p.Peek(k, start); ok || p.Consume(k, v) || p.Len() != 0 || p.Bytes() != 0 {
		t.Errorf("still there after it was booked: %d, %d bytes", p.Len(), p.Bytes())
	}
}

// Upstream: explicit_reservation_discards_cached_selection.
func TestExplicitReservationDiscardsCachedSelection(t *testing.T) {
	p := reserve.NewPending[*int](reserve.DefaultPendingConfig())
	other := reserve.PendingKey{Partition: fleet.PartitionKey{Model: "m2", Group: "g"}, ID: "a"}
	p.Put(pendingKey("a"), new(1), 10, start)
	p.Put(other, new(2), 7, start)
	p.Discard(pendingKey("a"))
	p.Discard(pendingKey("none"))
	if _, ok := p.Peek(pendingKey("a"), start); ok {
		t.Error("still there")
	}
	if v, ok := p.Peek(other, start); !ok || *v != 2 || p.Bytes() != 7 {
		t.Error("the same id of another partition went with it")
	}
}

func TestTheNewestSelectionOfAnIDWins(t *testing.T) {
	p := reserve.NewPending[*int](reserve.DefaultPendingConfig())
	k, old, newer := pendingKey("a"), new(1), new(1)
	p.Put(k, old, 10, start)
	p.Put(k, newer, 3, start.Add(time.Second))
	if p.Consume(k, old) {
		t.Error("a selection that was replaced took the newer one with it")
	}
	if got, ok := p.Peek(k, start.Add(time.Second)); !ok || got != newer || p.Len() != 1 || p.Bytes() != 3 {
		t.Errorf("got %v, %v; %d, %d bytes", got, ok, p.Len(), p.Bytes())
	}
}

func TestPendingSelectionsEndWithTheirTime(t *testing.T) {
	p := reserve.NewPending[*int](reserve.PendingConfig{TTL: time.Second, Entries: 10, Bytes: 1024})
	p.Put(pendingKey("a"), new(1), 1, start)
	p.Put(pendingKey("b"), new(2), 1, start.Add(500*time.Millisecond))
	p.Put(pendingKey("c"), new(3), 1, start.Add(600*time.Millisecond))
	p.Put(pendingKey("b"), new(4), 1, start.Add(900*time.Millisecond)) // anew
	if _, ok := p.Peek(pendingKey("a"), start.Add(time.Second-1)); !ok {
		t.Error("gone too soon")
	}
	if _, ok := p.Peek(pendingKey("a"), start.Add(time.Second)); ok {
		t.Error("there after its time")
	}
	if n := p.Reap(start.Add(1600 * time.Millisecond)); n != 2 || p.Len() != 1 || p.Bytes() != 1 {
		t.Errorf("%d reaped, %d left, %d bytes", n, p.Len(), p.Bytes())
	}
	if _, ok := p.Peek(pendingKey("b"), start.Add(1600*time.Millisecond)); !ok {
		t.Error("what was put anew went with its old time")
	}
}

func TestTheOldestPendingSelectionsMakeRoom(t *testing.T) {
	for _, c := range []struct {
		name            string
		entries         int
		bytes           int64
		put             []int64 // sizes
		kept            []int   // of put, by index
		bytesAfterwards int64
	}{
		{"by number", 2, 1000, []int64{1, 2, 3}, []int{1, 2}, 5},
		{"by bytes", 10, 100, []int64{40, 40, 20, 50}, []int{2, 3}, 70},
		{"exactly full", 10, 100, []int64{40, 60}, []int{0, 1}, 100},
		{"one as large as the bound", 10, 100, []int64{40, 100}, []int{1}, 100},
		{"one above the bound", 10, 100, []int64{40, 101}, []int{0}, 40},
		{"one far above the bound", 10, 100, []int64{40, math.MaxInt64, 10}, []int{0, 2}, 50},
		{"negative sizes count nothing", 10, 100, []int64{math.MinInt64, 100}, []int{0, 1}, 100},
		{"a bound of none", 0, 100, []int64{1}, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := reserve.NewPending[*int](reserve.PendingConfig{TTL: time.Minute, Entries: c.entries, Bytes: c.bytes})
			for i, n := range c.put {
				p.Put(pendingKey(fmt.Sprint(i)), &i, n, start)
			}
			var kept []int
			for i := range c.put {
				if _, ok := p.Peek(pendingKey(fmt.Sprint(i)), start); ok {
					kept = append(kept, i)
				}
			}
			if diff := cmp.Diff(c.kept, kept); diff != "" || p.Bytes() != c.bytesAfterwards || p.Len() != len(c.kept) {
				t.Errorf("%d, %d bytes (-want +got):\n%s", p.Len(), p.Bytes(), diff)
			}
		})
	}
}

func TestOneTooLargeTakesItsPredecessorAway(t *testing.T) {
	p := reserve.NewPending[*int](reserve.PendingConfig{TTL: time.Minute, Entries: 4, Bytes: 100})
	p.Put(pendingKey("a"), new(1), 10, start)
	p.Put(pendingKey("a"), new(2), 101, start)
	if _, ok := p.Peek(pendingKey("a"), start); ok || p.Len() != 0 || p.Bytes() != 0 {
		t.Error("an older selection stands in for the newest")
	}
}

func TestPendingIsSafeForConcurrentUse(t *testing.T) {
	const bound = 1 << 10
	p := reserve.NewPending[*int](reserve.PendingConfig{TTL: time.Second, Entries: 16, Bytes: bound})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 3))
			for i := range 2000 {
				k, now := pendingKey(fmt.Sprint(rng.IntN(40))), start.Add(time.Duration(i)*time.Millisecond)
				switch rng.IntN(6) {
				case 0:
					p.Discard(k)
				case 1:
					p.Reap(now)
				case 2:
					if v, ok := p.Peek(k, now); ok {
						p.Consume(k, v)
					}
				default:
					p.Put(k, &i, int64(rng.IntN(200)), now)
				}
				if n, b := p.Len(), p.Bytes(); n > 16 || b < 0 || b > bound {
					t.Errorf("%d kept, %d bytes", n, b)
					return
				}
			}
		})
	}
	wg.Wait()
	p.Reap(start.Add(time.Hour))
	if p.Len() != 0 || p.Bytes() != 0 {
		t.Errorf("%d left, %d bytes", p.Len(), p.Bytes())
	}
}
