package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
)

// padded is lowest in 300 KiB, other bytes for each number.
func padded(number int) []byte {
	pad := make([]byte, 300<<10)
	copy(pad, fmt.Sprint("reload ", number))
	return Guest{Name: "padded", After: func(m *Module) { m.Custom("pad", pad) }}.Bytes()
}

// flow decides from several goroutines until the returned function is called,
// which tells how many decisions there were and how many went wrong.
func (b *bench) flow(t testing.TB, callers int) (stop func() (calls, failures int64)) {
	t.Helper()
	h, err := b.source.Resolve(fleet.PartitionKey{}, "")
	if err != nil {
		t.Fatal(err)
	}
	var calls, failures atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			var d policy.Decision
			for seed := uint64(c) << 32; ; seed++ {
				select {
				case <-done:
					return
				default:
				}
				l := h.Acquire(policy.Ask{Seed: policy.SplitMix64(seed)})
				tab := rowsOf4(l.Columns, seed)
				if err := l.Decide(context.Background(), tab, &d); err != nil || d.Fault != nil && d.Fault.Reason != "pool_wait" {
					failures.Add(1)
				}
				l.Observe(tab, &d)
				l.Release()
				calls.Add(1)
			}
		})
	}
	return func() (int64, int64) {
		close(done)
		wg.Wait()
		return calls.Load(), failures.Load()
	}
}

func TestO3_ReloadsOfAModuleLeaveNothingBehind(t *testing.T) {
	const own = 4 // Run and its two, and the audits'
	goroutines := runtime.NumGoroutine() + own
	b := openBench(t, t.TempDir())
	b.run(t)
	stop := b.flow(t, 2)
	var memory []int64
	for i := range reloads {
		b.upload(t, "padded", padded(i))
		n := b.put(t, "default", spec("module:padded")).Number
		if i%2 == 0 {
			b.activate(t, "default", n)
		} else {
			b.canary(t, host.CanarySpec{Revision: n, Percent: 50})
			if _, _, err := b.source.Promote(t.Context(), "default", "test"); err != nil {
				t.Fatal(err)
			}
		}
		if u := b.rt.Usage(); u.Modules > 3 { // an audit may hold on to one that is closing
			t.Fatalf("reload %d: usage %+v, want the active revision's module and what is closing", i, u)
		}
		if i%(reloads/10) == 0 {
			memory = append(memory, held(b))
		}
	}
	calls, failures := stop()
	t.Logf("%d calls during %d reloads; memory %v", calls, reloads, memory)
	if failures != 0 || calls == 0 {
		t.Errorf("%d of %d calls failed", failures, calls)
	}
	// A sample may fall while two generations are alive: the least of some is
	// what is held for good.
	if first, last := slices.Min(memory[1:4]), slices.Min(memory[len(memory)-4:]); last > first+first/10+2<<20 {
		t.Errorf("memory rose from %d to %d bytes", first, last)
	}
	testkit.Until(t, "only the active revision's module is loaded", func() bool { return b.rt.Usage().Modules == 1 })
	testkit.Until(t, "goroutines are at their baseline", func() bool { return runtime.NumGoroutine() <= goroutines })
	blobs, err := os.ReadDir(filepath.Join(b.dir, "modules", "blobs"))
	if err != nil || len(blobs) != 10 {
		t.Errorf("%d stored modules (%v), want those of the ten kept revisions", len(blobs), err)
	}
}

// held is the heap after a collection plus guest memory.
func held(b *bench) int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) + b.rt.Usage().Memory
}
