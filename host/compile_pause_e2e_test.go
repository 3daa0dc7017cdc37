//go:build e2e

package host_test

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
)

// largeWhenMetered is a module of 2.7 MiB that becomes 28, near the 32 that it may.
func largeWhenMetered() []byte {
	loops := bytes.Repeat([]byte{0x03, 0x40, 0x0b}, 1000)
	return Guest{After: func(m *Module) {
		for range 900 {
			m.Func("", "", "", loops)
		}
	}}.Bytes()
}

// TestWorkOnLargeModulesStopsNobody measures pauses while a module is decoded,
// rewritten and named in this process, and while the processor is busy with a
// small one: medians of five. A copy or a sum cannot be interrupted; a collection
// waits for its end, and everybody for the collection.
func TestWorkOnLargeModulesStopsNobody(t *testing.T) {
	large, small := host.LargeWork(t, largeWhenMetered()), host.LargeWork(t, good())
	for name, work := range large {
		var with, without []float64
		for range 5 {
			without = append(without, pauseWhile(t, small[name]))
			with = append(with, pauseWhile(t, work))
		}
		slices.Sort(with)
		slices.Sort(without)
		t.Logf("%s: largest pause %.3f ms, control %.3f ms", name, with[2]*1e3, without[2]*1e3)
		if more := with[2] - without[2]; more > 0.010*hostilePatience {
			t.Errorf("%s: pauses are %.1f ms longer than the control's, want at most 10 ms (asserted at %d times)", name, more*1e3, hostilePatience)
		}
	}
}

// pauseWhile is the largest pause while work is done again and again.
func pauseWhile(t *testing.T, work func()) float64 {
	t.Helper()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				work()
			}
		}
	})
	defer wg.Wait()
	defer close(stop)
	return largestPause(t, stallRun)
}
