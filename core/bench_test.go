package core_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
)

// BenchmarkSelectReserveFree is a whole booking: hash the prompt, look it up,
// decide, book, first token, release.
func BenchmarkSelectReserveFree(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		for _, tokens := range []int{0, 512, 8192} {
			b.Run(fmt.Sprintf("workers=%d/tokens=%d", n, tokens), func(b *testing.B) {
				w := benchWorld(b, n)
				text := prompt('A', tokens)
				ctx := context.Background()
				b.ReportAllocs()
				i := uint32(0)
				before := cpu()
				for b.Loop() {
					i++
					if tokens > 0 {
						text[0] = i // unrelated to those before
					}
					sel, err := w.Select(ctx, bookRequest("r", text))
					if err != nil {
						b.Fatal(err)
					}
					sel.Reservation.PrefillComplete()
					sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
				}
				b.ReportMetric(float64(cpu()-before)/float64(b.N)/float64(n), "cpu-ns/candidate")
			})
		}
	}
}

// BenchmarkSelectUnderLoad books on a partition that holds 1,000 bookings with
// shared prefixes, from all processors.
func BenchmarkSelectUnderLoad(b *testing.B) {
	w := benchWorld(b, 64)
	for i := range 1000 {
		text := append(prompt(byte(i%8), 1024), prompt(byte(i), 512)...)
		if _, err := w.Select(context.Background(), bookRequest(fmt.Sprint("held", i), text)); err != nil {
			b.Fatal(err)
		}
	}
	text := append(prompt(3, 1024), prompt(200, 512)...)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			sel, err := w.Select(context.Background(), bookRequest("", text))
			if err != nil {
				b.Error(err)
				return
			}
			sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
		}
	})
}

func benchWorld(b *testing.B, n int) *core.SelectionCore {
	b.Helper()
	w := newWorld(b, use("builtin:kv-aware"), nil)
	c := core.New(core.DefaultConfig(), core.SelectionHost{}, w.policies, core.NoIndex{}, nil)
	if err := c.Prepare(b.Context(), model("m1"), 16); err != nil {
		b.Fatal(err)
	}
	var ch core.Change
	for i := range n {
		ch.Upserts = append(ch.Upserts, core.Member{Record: record(fmt.Sprintf("w%d", i), "m1"), Lifecycle: core.Ready})
	}
	if err := c.Commit(ch); err != nil {
		b.Fatal(err)
	}
	return c
}

// TestSelectAllocatesNothingPerCandidate compares the allocations of a booking
// over 8 workers with one over 512.
func TestSelectAllocatesNothingPerCandidate(t *testing.T) {
	per := func(n int) float64 {
		w := newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) { c.DecisionEntries = 2 })
		w.join(t, workers("m1", n)...)
		c := w.SelectionCore
		text := prompt('A', 64)
		return testing.AllocsPerRun(200, func() {
			sel, err := c.Select(context.Background(), &core.Request{
				Kind: core.Book, SelectionID: "r", Partition: fleet.PartitionKey{Model: "m1", Group: "default"},
				Prompt: core.Prompt{Tokens: text},
			})
			if err != nil {
				t.Fatal(err)
			}
			sel.Reservation.Release(reserve.Outcome{Kind: reserve.Completed})
			w.heard.decided, w.heard.released = w.heard.decided[:0], w.heard.released[:0]
		})
	}
	small, large := per(8), per(512)
	t.Logf("%v allocations over 8 workers, %v over 512", small, large)
	// The test's own index allocates for the hashes it computes, alike for both.
	if large > small {
		t.Errorf("%v allocations over 8 workers, %v over 512; want the same", small, large)
	}
	if small > 24 {
		t.Errorf("%v allocations a booking; want at most 24", small)
	}
}

// cpu is the process's processor time: on a machine that others use too, the
// clock tells more of them than of us.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
