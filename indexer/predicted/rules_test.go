package predicted_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/approx"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/indexer/predicted"
	"github.com/routerd/routerd/kvcache"
)

const size = 2 // tokens a block

var w1, w2 = fleet.Worker{ID: 1}, fleet.Worker{ID: 2, Rank: 1}

// tokens returns the ids of n blocks from one on.
func tokens(from, n int) []uint32 {
	ids := make([]uint32, n*size)
	for i := range ids {
		ids[i] = uint32(from*size + i)
	}
	return ids
}

func prompt(from, n int) []kvcache.BlockHash {
	blocks, err := kvcache.BlockHashes(nil, tokens(from, n), size, kvcache.Seed("", ""))
	if err != nil {
		panic(err)
	}
	return blocks
}

func hashes(from, n int) (list []kvcache.EngineHash) {
	for i := range n {
		list = append(list, kvcache.NumberHash(uint64(from+i)))
	}
	return list
}

// stored is a store of n blocks that begin a prompt, or follow on the block before.
func stored(t kvcache.Tier, from, n int) kvcache.Event {
	e := kvcache.Event{Kind: kvcache.Stored, Tier: t, Hashes: hashes(from, n), Tokens: tokens(from, n), BlockSize: size}
	if from > 1 {
		e.Parent, e.HasParent = kvcache.NumberHash(uint64(from-1)), true
	}
	return e
}

func removed(from, n int) kvcache.Event {
	return kvcache.Event{Kind: kvcache.Removed, Hashes: hashes(from, n)}
}

// want compares what is found of a prompt of 10 blocks.
func want(t *testing.T, x *predicted.Index, what string, w fleet.Worker, overlap kvcache.Overlap) {
	t.Helper()
	out := make([]kvcache.Overlap, 2)
	x.Find(prompt(1, 10), []fleet.Worker{{ID: 77}, w}, out)
	if d := cmp.Diff([]kvcache.Overlap{{}, overlap}, out); d != "" {
		t.Errorf("%s (-want +got): %s", what, d)
	}
}

func closing(t *testing.T) *predicted.Index {
	t.Helper()
	x := index(t, size)
	t.Cleanup(x.Close)
	return x
}

func TestADecisionCountsUntilItsEventsConfirmIt(t *testing.T) {
	x := closing(t)
	x.Record(w1, prompt(1, 10))
	want(t, x, "recorded", w1, kvcache.Overlap{Device: 10})
	want(t, x, "of another worker", w2, kvcache.Overlap{})
	x.Apply(w1, []kvcache.Event{stored(kvcache.Device, 1, 9)})
	x.Apply(w1, []kvcache.Event{removed(9, 1)})
	want(t, x, "evicted before all was stored", w1, kvcache.Overlap{Device: 10})
	x.Apply(w1, []kvcache.Event{stored(kvcache.Device, 9, 1)})
	x.Apply(w2, []kvcache.Event{stored(kvcache.Device, 1, 10)})
	x.Apply(w1, []kvcache.Event{removed(9, 1)})
	want(t, x, "another worker's events", w1, kvcache.Overlap{Device: 10})
	x.Apply(w1, []kvcache.Event{stored(kvcache.Device, 9, 2), removed(4, 7)})
	want(t, x, "stored and evicted in one message", w1, kvcache.Overlap{Device: 3})
	x.Record(w1, prompt(1, 3))
	x.Apply(w1, []kvcache.Event{removed(2, 2)})
	want(t, x, "recorded while it was held", w1, kvcache.Overlap{Device: 1})
}

// A decision is looked at when its last block comes to the device, not when another one or another tier does.
func TestOnlyTheLastBlockOnTheDeviceConfirms(t *testing.T) {
	x := closing(t)
	x.Apply(w1, []kvcache.Event{stored(kvcache.Device, 1, 10), removed(4, 1)})
	x.Record(w1, prompt(1, 10))
	x.Apply(w1, []kvcache.Event{stored(kvcache.Device, 4, 1), stored(kvcache.Host, 10, 1), removed(6, 1)})
	want(t, x, "others came", w1, kvcache.Overlap{Device: 10})
	x.Apply(w1, []kvcache.Event{stored(kvcache.Device, 6, 1), stored(kvcache.Device, 10, 1), removed(6, 1)})
	want(t, x, "the last one came", w1, kvcache.Overlap{Device: 5})
}

func TestADecisionLiftsSlowerTiersToTheDevice(t *testing.T) {
	x := closing(t)
	x.Apply(w1, []kvcache.Event{stored(kvcache.Device, 1, 2), stored(kvcache.Host, 3, 3), stored(kvcache.Disk, 6, 2), stored(kvcache.Shared, 8, 2)})
	want(t, x, "events alone", w1, kvcache.Overlap{Device: 2, Host: 3, Disk: 2, Shared: 2})
	x.Record(w1, prompt(1, 4))
	want(t, x, "within host memory", w1, kvcache.Overlap{Device: 4, Host: 1, Disk: 2, Shared: 2})
	x.Record(w1, prompt(1, 8))
	want(t, x, "beyond the disk", w1, kvcache.Overlap{Device: 8, Shared: 1})
	x.Record(w1, prompt(1, 10))
	want(t, x, "beyond all", w1, kvcache.Overlap{Device: 10})
	x.Apply(w1, []kvcache.Event{stored(kvcache.Host, 10, 1)})
	x.Apply(w1, []kvcache.Event{{Kind: kvcache.Removed, Tier: kvcache.Host, Hashes: hashes(10, 1)}})
	want(t, x, "stored on another tier", w1, kvcache.Overlap{Device: 10})
}

func TestADecisionIsVoidAfterItsTTLAndWithItsWorker(t *testing.T) {
	for what, end := range map[string]func(x *predicted.Index){
		"time":    func(*predicted.Index) { <-time.After(ttl) },
		"forget":  func(x *predicted.Index) { x.Forget(w1) },
		"clear":   func(x *predicted.Index) { x.Clear(w1) },
		"remove":  func(x *predicted.Index) { x.Remove(w1) },
		"cleared": func(x *predicted.Index) { x.Apply(w1, []kvcache.Event{{Kind: kvcache.Cleared}}) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := closing(t)
				x.Record(w1, prompt(1, 10))
				x.Record(w2, prompt(1, 5))
				end(x)
				synctest.Wait()
				want(t, x, "afterwards", w1, kvcache.Overlap{})
				if what != "time" {
					want(t, x, "of another worker", w2, kvcache.Overlap{Device: 5})
				}
			})
		})
	}
}

// However a record and the events of its prompt meet, nothing is left to hide an eviction.
func TestADecisionThatMeetsItsEventsIsConfirmed(t *testing.T) {
	x := closing(t)
	for range 2000 {
		var both sync.WaitGroup
		both.Go(func() { x.Record(w1, prompt(1, 10)) })
		both.Go(func() { x.Apply(w1, []kvcache.Event{stored(kvcache.Device, 1, 10)}) })
		both.Wait()
		x.Apply(w1, []kvcache.Event{removed(1, 10)})
		if want(t, x, "evicted", w1, kvcache.Overlap{}); t.Failed() {
			return
		}
	}
}

// What moves from a decision to the events is found all the time.
func TestFindsSeeWhatIsBeingConfirmed(t *testing.T) {
	x := closing(t)
	blocks, out := prompt(1, 10), make([]kvcache.Overlap, 1)
	for range 2000 {
		x.Record(w1, blocks)
		done := make(chan struct{})
		go func() {
			defer close(done)
			x.Apply(w1, []kvcache.Event{stored(kvcache.Device, 1, 10)})
		}()
		for waiting := true; waiting; {
			select {
			case <-done:
				waiting = false
			default:
			}
			if x.Find(blocks, []fleet.Worker{w1}, out); out[0].Device != 10 {
				<-done
				t.Fatalf("found %+v, want 10 blocks", out[0])
			}
		}
		x.Clear(w1)
	}
}

func TestAnIndexNeedsAnEndOfItsDecisions(t *testing.T) {
	for _, limits := range []approx.Config{{}, {TTL: time.Second, MaxBlocks: -1}} {
		if _, err := predicted.New(exact.New(size), limits); err == nil {
			t.Errorf("%+v is taken", limits)
		}
	}
}

// bench returns an index in which 64 workers hold a prompt, and another prompt of 512 blocks as it is stored.
func bench(b *testing.B) (*predicted.Index, []kvcache.Event, []kvcache.Event) {
	x := index(b, 16)
	var stores, removals []kvcache.Event
	ids := make([]uint32, 512*16)
	for from := 0; from < 512; from += 16 {
		e := kvcache.Event{Kind: kvcache.Stored, Hashes: hashes(1000+from, 16), Tokens: ids[from*16 : (from+16)*16], BlockSize: 16}
		if from > 0 {
			e.Parent, e.HasParent = kvcache.NumberHash(uint64(1000+from-1)), true
		}
		stores = append(stores, e)
		removals = append(removals, removed(1000+from, 16))
	}
	return x, stores, removals
}

func BenchmarkApply(b *testing.B) {
	for what, record := range map[string]bool{"without decisions": false, "with one": true} {
		b.Run(what, func(b *testing.B) {
			x, stores, removals := bench(b)
			defer x.Close()
			if record {
				x.Record(w1, prompt(1, 10))
			}
			b.ReportAllocs()
			for b.Loop() {
				x.Apply(w1, stores)
				x.Apply(w1, removals)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*512), "ns/block")
		})
	}
}
