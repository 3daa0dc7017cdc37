package core_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
)

// BenchmarkSelectReserveFree is a whole booking: hash the prompt, look it up,
// decide, book, first token, release.
func BenchmarkSelectReserveFree(b *testing.B) {
	for _, n := range []int{8, 64, 512, 1024} {
		for _, tokens := range []int{256, 8192} {
			b.Run(fmt.Sprintf("workers=%d/tokens=%d", n, tokens), func(b *testing.B) {
				w := benchWorld(b, n)
				text := prompt('A', tokens)
				ctx := context.Background()
				b.ReportAllocs()
				i := uint32(0)
				before := cpu()
				for b.Loop() {
					i++
					text[0] = i // unrelated to those before
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

// cpu is the process's processor time: on a machine that others use too, the
// clock tells more of them than of us.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
