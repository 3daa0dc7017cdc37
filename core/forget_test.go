package core_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

func nothing(fleet.PartitionKey) bool { return false }

// opening is an index source that counts what is open.
type opening struct {
	*cache
	mu   sync.Mutex // guards open
	open map[fleet.PartitionKey]int
}

func (o *opening) Open(key fleet.PartitionKey, blockSize int) (core.KvIndex, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[key]++
	return o.cache.Open(key, blockSize)
}

func (o *opening) Forget(key fleet.PartitionKey) {
	rest() // whoever prepares the partition meanwhile waits
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[key]--
}

func (o *opening) of(key fleet.PartitionKey) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open[key]
}

// forgetful is a world whose index source forgets.
func forgetful(t *testing.T) (*world, *opening) {
	t.Helper()
	w := newWorld(t, use("builtin:kv-aware"), nil)
	o := &opening{cache: w.cache, open: map[fleet.PartitionKey]int{}}
	w.SelectionCore = core.New(core.DefaultConfig(), core.SelectionHost{Telemetry: w.heard}, w.policies, o, nil)
	return w, o
}

// Whoever prepares a partition puts a worker into it a moment later.
func TestAPartitionThatWasPreparedAMomentAgoIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := forgetful(t)
		w.join(t, record("w1", "m1"))
		w.remove(t, "w1")
		<-time.After(time.Hour)
		if err := w.Prepare(t.Context(), model("m1"), 16); err != nil {
			t.Fatal(err)
		}
		forget := func() []fleet.PartitionKey { return w.Forget(time.Now(), time.Minute, nothing) }
		if keys := forget(); len(keys) > 0 {
			t.Errorf("forgot %v, which is being joined", keys)
		}
		w.join(t, record("w1", "m1"))
		w.remove(t, "w1")
		<-time.After(time.Hour)
		if err := w.Prepare(t.Context(), model("m1"), 32); !errors.As(err, new(*core.MismatchError)) {
			t.Errorf("got %v", err)
		}
		if keys := forget(); len(keys) != 1 || o.of(model("m1")) != 0 {
			t.Errorf("forgot %v: nobody can come with other blocks than it has", keys)
		}
	})
}

// Nobody may ever come for whom a partition was prepared.
func TestAPartitionThatIsOnlyPreparedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := forgetful(t)
		if err := w.Prepare(t.Context(), model("m1"), 16); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		keys := w.Forget(time.Now(), time.Minute, nothing)
		if diff := cmp.Diff([]fleet.PartitionKey{model("m1")}, keys); diff != "" || o.of(model("m1")) != 0 {
			t.Errorf("%d open (-want +got):\n%s", o.of(model("m1")), diff)
		}
		w.join(t, record("w1", "m1"))
		if n := o.of(model("m1")); n != 1 {
			t.Errorf("%d open", n)
		}
	})
}

func TestASelectionThatWaitsForItsBookingGoesWithItsPartition(t *testing.T) {
	w, _ := forgetful(t)
	w.join(t, record("w1", "m1"))
	if _, err := w.Select(t.Context(), &core.Request{Kind: core.Query, SelectionID: "q", Partition: model("m1")}); err != nil {
		t.Fatal(err)
	}
	w.remove(t, "w1")
	w.Forget(time.Now().Add(time.Hour), time.Minute, nothing)
	w.join(t, record("w1", "m1"))
	_, err := w.Reserve(t.Context(), &core.Booking{SelectionID: "q", Partition: model("m1")})
	if e, ok := errors.AsType[*core.Error](err); !ok || e.Code != core.CodeNotFound {
		t.Errorf("got %v, want that nothing is kept", err)
	}
}

// A model comes and goes while it is asked for and forgotten all the time: a request
// that begins when its worker is there is answered by it, the others are told what is
// so, and there is an index as long as there is a worker.
func TestWhoComesWhileAPartitionIsForgottenIsNotLost(t *testing.T) {
	const rounds = 300
	w, o := forgetful(t)
	key := model("m1")
	var over atomic.Bool
	var all sync.WaitGroup
	defer all.Wait()
	defer over.Store(true)
	var forgets atomic.Int64
	for range 2 { // side by side
		all.Go(func() {
			for !over.Load() {
				// As if an hour had passed: nothing but workers and requests keeps it.
				forgets.Add(int64(len(w.Forget(time.Now().Add(time.Hour), time.Minute, nothing))))
				rest()
			}
		})
	}
	var asked atomic.Int64
	for i := range 2 {
		all.Go(func() {
			for n := 0; !over.Load(); n++ {
				asked.Add(1)
				sel, err := w.Select(t.Context(), &core.Request{Kind: core.Book, SelectionID: fmt.Sprint(i, "-", n), Partition: key})
				if err == nil {
					sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
				} else if e, ok := errors.AsType[*core.Error](err); !ok || e.Code != core.CodeModelNotFound && e.Code != core.CodeNoWorkers {
					t.Errorf("got %v", err)
				}
				rest() // as long as one is under way nothing is forgotten
			}
		})
	}
	rec := record("w1", "m1")
	few := func() bool { return forgets.Load() < rounds/10 || asked.Load() < rounds }
	for i := 0; i < rounds || few() && i < 100*rounds; i++ { // until enough has met
		comes(t, w, rec)
		if sel, err := w.Select(t.Context(), &core.Request{Kind: core.Query, Partition: key}); err != nil || sel.Name != "w1" {
			t.Errorf("with a worker: got %v, %v", sel, err)
		}
		if _, err := w.PotentialLoads(t.Context(), &core.Lookup{Partition: key}); err != nil {
			t.Errorf("a look with a worker: %v", err)
		}
		if n := o.of(key); n != 1 {
			t.Fatalf("%d indexes of a partition that has a worker", n)
		}
		w.remove(t, "w1")
		for n := 0; i%2 == 0 && n < 1000 && len(w.Models("")) > 0; n++ {
			runtime.Gosched() // every other time it comes back at once, else as soon as it is not known
		}
	}
	over.Store(true)
	all.Wait()
	forgets.Add(int64(len(w.Forget(time.Now().Add(time.Hour), time.Minute, nothing))))
	if few() {
		t.Errorf("forgotten %d times, asked for %d times", forgets.Load(), asked.Load())
	}
	if n := o.of(key); n != 0 || len(w.Models("")) != 0 || w.Reservations() != 0 {
		t.Errorf("left: %d indexes, models %v, %d reservations", n, w.Models(""), w.Reservations())
	}
}

// rest lets others run.
func rest() {
	for range 20 {
		runtime.Gosched()
	}
}

// comes brings a worker as the catalog does, again where its partition was forgotten
// before it was in.
func comes(t *testing.T, w *world, rec fleet.Record) {
	t.Helper()
	for {
		if err := w.Prepare(t.Context(), rec.Partition(), 16); err != nil {
			t.Fatal(err)
		}
		err := w.Commit(core.Change{Upserts: []core.Member{{Record: rec, Lifecycle: core.Ready, BlockSize: 16}}})
		if err == nil {
			return
		}
		if e, ok := errors.AsType[*fleet.FieldError](err); !ok || e.Field != "partition" {
			t.Fatal(err)
		}
	}
}
