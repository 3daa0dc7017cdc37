package affinity_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/routerd/routerd/core/affinity"
)

// BenchmarkTake takes and releases bound sessions of a full table, in turn, so
// that the end of each idle time is moved.
func BenchmarkTake(b *testing.B) {
	for _, n := range []int{64, 65_536} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tab := newTable(n)
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprintf("session-%d", i)
				h := tab.Take(ids[i], start)
				h.Commit(target(1), start).Release(start)
			}
			b.ReportAllocs()
			i, now := 0, start
			for b.Loop() {
				h := tab.Take(ids[i%n], now)
				h.Commit(h.Target(), now).Release(now)
				now = now.Add(time.Nanosecond)
				i++
			}
		})
	}
}

// BenchmarkTakeOfAFullTable finds no room in a table of live sessions.
func BenchmarkTakeOfAFullTable(b *testing.B) {
	tab := newTable(affinity.MaxEntries)
	for i := range affinity.MaxEntries {
		h := tab.Take(fmt.Sprint(i), start)
		h.Commit(target(1), start).Release(start)
	}
	b.ReportAllocs()
	for b.Loop() {
		tab.Take("new", start)
	}
}
