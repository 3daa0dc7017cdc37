package approx_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/approx"
	"github.com/routerd/routerd/kvcache"
)

func TestABlockCountsForTheTTLAfterItWasLastRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := index(t, approx.Config{TTL: 100 * time.Second})
		long := prompt(1, 300)
		x.Record(w1, long)
		<-time.After(60 * time.Second)
		x.Record(w1, long[:200])
		x.Record(w2, long[:10])
		for _, c := range []struct {
			after  time.Duration
			first  int // of w1
			second int // of w2
		}{
			{39 * time.Second, 300, 10},
			{time.Second, 200, 10},
			{59 * time.Second, 200, 10},
			{time.Second, 0, 0},
		} {
			<-time.After(c.after)
			synctest.Wait()
			if a, b := reach(x, w1, long), reach(x, w2, long); a != c.first || b != c.second {
				t.Errorf("after another %s: %d and %d blocks, want %d and %d", c.after, a, b, c.first, c.second)
			}
		}
		if n := held(x, w1) + held(x, w2); n != 0 || x.Armed() {
			t.Errorf("%d blocks, timer set %t", n, x.Armed())
		}
	})
}

// Between two ticks a find may see too much, by a hundredth of the TTL at most; what takes the lock does not.
func TestAFindIsLateByATickAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := index(t, approx.Config{TTL: 100 * time.Second})
		<-time.After(300 * time.Millisecond)
		x.Record(w1, prompt(1, 5))
		<-time.After(100 * time.Second)
		synctest.Wait()
		if n := reach(x, w1, prompt(1, 5)); n != 5 {
			t.Errorf("%d blocks before the tick", n)
		}
		<-time.After(700 * time.Millisecond)
		synctest.Wait()
		if n := reach(x, w1, prompt(1, 5)); n != 0 {
			t.Errorf("%d blocks after the tick", n)
		}
		x.Record(w1, prompt(1, 5))
		<-time.After(100*time.Second - time.Millisecond)
		if n := held(x, w1); n != 5 {
			t.Errorf("%d blocks before their time", n)
		}
		<-time.After(time.Millisecond)
		if n := held(x, w1); n != 0 {
			t.Errorf("%d blocks at their time", n)
		}
	})
}

func TestAClosedIndexSetsNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := index(t, approx.Config{TTL: time.Second})
		x.Record(w1, prompt(1, 5))
		x.Close()
		x.Close()
		<-time.After(2 * time.Second)
		synctest.Wait()
		if n := reach(x, w1, prompt(1, 5)); n != 5 {
			t.Errorf("%d blocks: the timer went on", n)
		}
		x.Record(w2, prompt(2, 5)) // lets go of what is over
		<-time.After(2 * time.Second)
		synctest.Wait()
		if a, b := reach(x, w1, prompt(1, 5)), reach(x, w2, prompt(2, 5)); a != 0 || b != 5 {
			t.Errorf("%d and %d blocks", a, b)
		}
	})
}

func TestADecisionIsSettledByItsLastBlock(t *testing.T) {
	x := index(t, approx.Config{TTL: time.Hour, Settles: true})
	a, b := prompt(1, 300), slices.Concat(prompt(1, 300)[:200], prompt(2, 3))
	x.Record(w1, a)
	x.Record(w1, b)
	x.Record(w2, a)
	asked := 0
	x.Settle(w1, append(a[:299:299], b[201]), func([]kvcache.BlockHash) bool { asked++; return true })
	x.Settle(fleet.Worker{ID: 9}, a, func([]kvcache.BlockHash) bool { asked++; return true })
	if asked > 0 {
		t.Errorf("asked %d times about decisions that end elsewhere", asked)
	}
	x.Settle(w1, a[295:], func(path []kvcache.BlockHash) bool {
		asked++
		if len(path) != 300 || path[0] != a[0] || path[150] != a[150] || path[299] != a[299] {
			t.Errorf("asked about %d blocks that are not the decision's", len(path))
		}
		return asked > 1
	})
	if got := [...]int{asked, reach(x, w1, a)}; got != [...]int{1, 300} {
		t.Errorf("asked %d times, and then %d blocks", got[0], got[1])
	}
	x.Settle(w1, a[299:], func([]kvcache.BlockHash) bool { return true })
	if got := [...]int{reach(x, w1, a), reach(x, w1, b), reach(x, w2, a)}; got != [...]int{200, 203, 300} {
		t.Errorf("blocks %v afterwards", got)
	}
	x.Settle(w1, b[202:], func([]kvcache.BlockHash) bool {
		x.Record(w1, b) // again, meanwhile
		return true
	})
	if n := reach(x, w1, b); n != 203 {
		t.Errorf("%d blocks of what was recorded again", n)
	}
	x.Settle(w1, b[202:], func([]kvcache.BlockHash) bool {
		x.Record(w1, prompt(3, 1))
		x.Forget(w1) // meanwhile
		x.Record(w1, prompt(3, 1))
		return true
	})
	if got := [...]int{reach(x, w1, b), reach(x, w1, prompt(3, 1))}; got != [...]int{0, 1} {
		t.Errorf("blocks %v after it went by itself", got)
	}
}

// Two hashes may have one key.
func TestADecisionIsNotSettledByABlockThatIsLikeItsLast(t *testing.T) {
	x := index(t, approx.Config{TTL: time.Hour, Settles: true})
	a := prompt(1, 3)
	b := []kvcache.BlockHash{a[0], a[1], x.Twin(a[2])}
	x.Record(w1, a)
	x.Record(w1, b)
	asked := 0
	x.Settle(w1, a[2:], func(path []kvcache.BlockHash) bool {
		asked++
		return slices.Equal(path, a)
	})
	if got := [...]int{asked, reach(x, w1, a), reach(x, w1, b)}; got != [...]int{1, 2, 3} {
		t.Errorf("asked %d times, then %d and %d blocks", got[0], got[1], got[2])
	}
}

func TestI4_ReadersSeeNoLessThanWhatAWorkerHoldsThroughout(t *testing.T) {
	x := index(t, approx.Config{MaxBlocks: 20_000, TTL: 10 * time.Millisecond, Settles: true})
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	for n := range 8 {
		writers.Go(func() {
			w := fleet.Worker{ID: fleet.WorkerID(n)}
			for round := range 300 {
				x.Record(w, append(prompt(round%7, 200), prompt(n, round)...))
				x.Settle(w, prompt(n, 50), func([]kvcache.BlockHash) bool { return round%2 == 0 })
				switch round % 20 {
				case 0:
					x.Clear(w)
				case 1:
					x.Blocks(w)
					x.Bytes()
				}
			}
		})
	}
	for n := range 4 {
		readers.Go(func() {
			workers, blocks := []fleet.Worker{{ID: fleet.WorkerID(n)}, {ID: 5}, {ID: 77}}, append(prompt(n, 200), prompt(n, 100)...)
			out := make([]kvcache.Overlap, 3)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if x.Find(blocks, workers, out); out[0].Device > 300 || out[2] != (kvcache.Overlap{}) {
					t.Errorf("overlaps %v", out)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	for n := range 8 {
		x.Remove(fleet.Worker{ID: fleet.WorkerID(n)})
	}
	x.Record(w1, prompt(1, 5))
	x.Remove(w1)
	if n := x.Nodes(); n != 0 {
		t.Errorf("%d nodes are left", n)
	}
}
