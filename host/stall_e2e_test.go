//go:build e2e

package host_test

import (
	"context"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
)

// largestPause is the largest stop of the world while a collection runs each
// 10 ms for a while, in seconds.
func largestPause(t *testing.T, during time.Duration) float64 {
	t.Helper()
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	before := slices.Clone(sample[0].Value.Float64Histogram().Counts)
	tick, end := time.NewTicker(10*time.Millisecond), time.After(during)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-end:
			running = false
		case <-tick.C:
			runtime.GC()
		}
	}
	metrics.Read(sample)
	h := sample[0].Value.Float64Histogram()
	for i := len(h.Counts) - 1; i >= 0; i-- {
		if h.Counts[i] > before[i] {
			return h.Buckets[i]
		}
	}
	return 0
}

// TestW2_NobodyElseIsDelayed measures stalls: three runs with hostile calls and
// three without, medians. The bound of 10 ms is asserted at ten times.
func TestW2_NobodyElseIsDelayed(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.CallDeadline = 10 * time.Millisecond })
	for name, wasm := range map[string][]byte{
		"exponential calls": exponential(), "pointer chase": hostileInACall()["random pointer chase"].guest.Bytes(),
	} {
		s := stage(t, r, wasm, "")
		var with, without []float64
		for range 3 {
			without = append(without, largestPause(t, 150*time.Millisecond))
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							_, _ = s.Score(context.Background(), badTable(s, 8), make([]float64, 8), &policy.StageReport{})
						}
					}
				})
			}
			with = append(with, largestPause(t, 150*time.Millisecond))
			close(stop)
			wg.Wait()
		}
		slices.Sort(with)
		slices.Sort(without)
		t.Logf("%s: largest pause %.3f ms with, %.3f ms without (medians of three)", name, with[1]*1e3, without[1]*1e3)
		if more := with[1] - without[1]; more > 0.1 {
			t.Errorf("%s: pauses are %.1f ms longer than the control's, want at most 10 ms (asserted at ten times)", name, more*1e3)
		}
	}
}
