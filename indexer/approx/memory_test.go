//go:build !indexcheck

// A check of all invariants at each step is no matter for a million blocks.

package approx_test

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/approx"
	"github.com/routerd/routerd/kvcache"
)

// liveHeap is what is in use once all garbage is gone.
func liveHeap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools kept goes with the second one
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestI1_TheLimitOfBlocksHoldsAndTheHeapIsFlat(t *testing.T) {
	const limit, each, parts = 100_000, 32, 8
	x := index(t, approx.Config{MaxBlocks: limit})
	var heaps []int
	for part := range parts {
		for i := range records / parts {
			n := part*records/parts + i
			x.Record(fleet.Worker{ID: fleet.WorkerID(n % 4)}, prompt(n, each))
			if i%1000 == 0 {
				sum := 0
				for w := range fleet.WorkerID(4) {
					sum += held(x, fleet.Worker{ID: w})
				}
				if sum != min(limit, (n+1)*each) {
					t.Fatalf("%d blocks after %d prompts", sum, n+1)
				}
			}
		}
		heaps = append(heaps, liveHeap())
	}
	half := heaps[parts/2-1]
	t.Logf("live heap %v, own account %d", heaps, x.Bytes())
	for _, now := range heaps[parts/2:] {
		if now > half+half/20 {
			t.Errorf("live heap rose from %d to %d bytes", half, now)
		}
	}
	if n := reach(x, fleet.Worker{ID: 3}, prompt(records-1, each)); n != each {
		t.Errorf("%d blocks of the last prompt, want %d", n, each)
	}
	if n := reach(x, fleet.Worker{ID: 3}, prompt(records-1-limit/each-4, each)); n != 0 {
		t.Errorf("%d blocks of a prompt that went long ago", n)
	}
	runtime.KeepAlive(x)
}

func TestI2_TheLimitHoldsBetweenMaintenances(t *testing.T) {
	const limit = 10_000
	synctest.Test(t, func(t *testing.T) {
		x := index(t, approx.Config{TTL: 100 * time.Minute, MaxBlocks: limit}) // the timer's tick is a minute
		stop, samples, most := make(chan struct{}), 0, 0
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					samples++
					most = max(most, held(x, w1)+held(x, w2))
				}
			}
		}()
		for i := range inserts {
			x.Record([]fleet.Worker{w1, w2}[i%2], prompt(i, 1+i%3))
			if i%100 == 99 {
				<-time.After(time.Millisecond)
			}
		}
		close(stop)
		synctest.Wait()
		if samples < inserts/1000-10 || most > limit+limit/10 || most < limit-2 {
			t.Errorf("up to %d blocks in %d samples", most, samples)
		}
	})
}

func TestTheLimitOfBytesHolds(t *testing.T) {
	const limit = 4 << 20
	x := index(t, approx.Config{MaxBytes: limit})
	hot := prompt(0, 300)
	const rounds = max(12_000, records*6/100)
	for i := range rounds { // ever shorter prompts, which use other pages
		x.Record(fleet.Worker{ID: fleet.WorkerID(i % 16)}, hot)
		x.Record(fleet.Worker{ID: fleet.WorkerID(i % 16)}, append(hot[:i%300:i%300], prompt(i, max(1, 200-i*300/rounds))...))
		if n := x.Bytes(); n > limit+limit/10 {
			t.Fatalf("%d bytes after %d prompts", n, i)
		}
	}
	if n := x.Bytes(); n < limit-limit/4 {
		t.Errorf("%d bytes: more went than had to", n)
	}
	for w := range fleet.WorkerID(16) {
		if n := reach(x, fleet.Worker{ID: w}, hot); n != 300 {
			t.Errorf("worker %d has %d blocks of what is recorded all the time", w, n)
		}
	}
}

func TestBytesAreThoseOfTheHeap(t *testing.T) {
	worker := func(n int) fleet.Worker { return fleet.Worker{ID: fleet.WorkerID(n)} }
	for _, c := range []struct {
		what string
		cfg  approx.Config
		fill func(x *approx.Index)
	}{
		{"long prompts", approx.Config{}, func(x *approx.Index) {
			for i := range 2000 {
				x.Record(worker(i%64), prompt(i, 512))
			}
		}},
		{"prompts of one block", approx.Config{Settles: true}, func(x *approx.Index) {
			for i := range 100_000 {
				x.Record(worker(i%64), prompt(i, 1))
			}
		}},
		{"everybody has the same", approx.Config{}, func(x *approx.Index) {
			for i := range 512 {
				for n := range 200 {
					x.Record(worker(i), append(prompt(0, 100), prompt(n, 100+i%5)...))
				}
			}
		}},
		{"many workers", approx.Config{}, func(x *approx.Index) {
			for i := range 20_000 {
				x.Record(worker(i), prompt(i, 3))
			}
		}},
		{"churn at the limit", approx.Config{MaxBlocks: 200_000}, func(x *approx.Index) {
			rng := rand.New(rand.NewPCG(1, 2))
			for range 30_000 {
				x.Record(worker(rng.IntN(64)), append(prompt(rng.IntN(20), 30), prompt(rng.IntN(100_000), 1+rng.IntN(150))...))
			}
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			before := liveHeap()
			x := index(t, c.cfg)
			c.fill(x)
			heap, own := liveHeap()-before, x.Bytes()
			t.Logf("%d bytes by its own account, heap %d", own, heap)
			if own < heap-heap/20 || own > heap+heap/20 {
				t.Errorf("%d bytes by its own account, heap %d", own, heap)
			}
			runtime.KeepAlive(x)
		})
	}
}

// At rest, memory comes back by itself, and the timer is not set again.
func TestAnIndexAtRestGivesItsMemoryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := index(t, approx.Config{TTL: time.Minute})
		x.Record(w1, prompt(0, 1))
		empty := liveHeap()
		for i := range 5000 {
			x.Record(fleet.Worker{ID: fleet.WorkerID(i % 8)}, prompt(i, 200))
		}
		full := liveHeap()
		<-time.After(time.Minute)
		synctest.Wait()
		left := liveHeap()
		t.Logf("live heap empty %d, full %d, at rest %d", empty, full, left)
		if left > empty+(full-empty)/50 || full < empty+5000*200*8 || x.Armed() {
			t.Errorf("live heap empty %d, full %d, at rest %d; timer set %t", empty, full, left, x.Armed())
		}
	})
}

func TestClearGivesMemoryBackAndOthersKeepTheirs(t *testing.T) {
	x := index(t, approx.Config{TTL: time.Hour, Settles: true})
	x.Record(w2, prompt(1, 200))
	empty := x.Bytes()
	for i := range 5000 {
		x.Record(w1, prompt(i, 200))
	}
	full := x.Bytes()
	x.Clear(w1)
	left := x.Bytes()
	if left > empty+full/10 { // headers stay, in pages
		t.Errorf("%d bytes empty, %d full, %d afterwards", empty, full, left)
	}
	if got := [...]int{held(x, w1), reach(x, w1, prompt(1, 200)), reach(x, w2, prompt(1, 200))}; got != [...]int{0, 0, 200} {
		t.Errorf("got %v", got)
	}
	x.Remove(w2)
	x.Forget(w2)
	if n := x.Bytes(); n > empty {
		t.Errorf("%d bytes without workers, %d at first", n, empty)
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, c := range []struct {
		what string
		next func(i int) (fleet.Worker, []kvcache.BlockHash)
	}{
		{"held", func(int) (fleet.Worker, []kvcache.BlockHash) { return w1, held512 }},
		{"new", func(i int) (fleet.Worker, []kvcache.BlockHash) {
			held512[0] = kvcache.BlockHash(i)
			return fleet.Worker{ID: fleet.WorkerID(i % 64)}, held512
		}},
		{"newtail", func(i int) (fleet.Worker, []kvcache.BlockHash) {
			held512[500] = kvcache.BlockHash(i)
			return fleet.Worker{ID: fleet.WorkerID(i % 64)}, held512
		}},
	} {
		b.Run(c.what+"/depth=512", func(b *testing.B) {
			x, err := approx.New(approx.Config{TTL: time.Minute, MaxBlocks: 1 << 20})
			if err != nil {
				b.Fatal(err)
			}
			defer x.Close()
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				w, blocks := c.next(i)
				x.Record(w, blocks)
				i++
			}
		})
	}
}

var held512 = prompt(7, 512)

func BenchmarkFind(b *testing.B) {
	x, err := approx.New(approx.Config{TTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	var workers []fleet.Worker
	for i := range 64 {
		workers = append(workers, fleet.Worker{ID: fleet.WorkerID(i)})
		x.Record(workers[i], prompt(7, 512))
	}
	out := make([]kvcache.Overlap, 64)
	blocks := prompt(7, 512)
	b.ReportAllocs()
	for b.Loop() {
		x.Find(blocks, workers, out)
	}
}
