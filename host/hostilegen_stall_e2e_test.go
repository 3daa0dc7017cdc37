//go:build e2e

package host_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/routerd/routerd/host/smith/hostiletest"
	"github.com/routerd/routerd/host/wasmtest"
)

// stallRun is how long the largest pause is looked for, six times for each group of families.
const stallRun = 300 * time.Millisecond

// TestHostileModulesDelayNobody measures stalls of the whole process: three runs in which two callers
// stage and call hostile modules, and three in which they do the same with good ones, medians. The
// control works as hard, so that the machine's own pauses are in both.
func TestHostileModulesDelayNobody(t *testing.T) {
	h := newHostileRun(t, hostileMemory, shortChildWall, hostileExamples(t)...)
	names := hostiletest.Families()
	for group := range slices.Chunk(indices(len(names)), stallGroup) {
		var with, without []float64
		for round := range 3 {
			var good, hostile []hostiletest.Specimen // made beforehand: making large ones stalls too
			for i := range 8 * max(len(group), 4) {
				good = append(good, goodSpecimen(round<<20+i))
				hostile = append(hostile, h.specimen(group[i%len(group)]+len(names)*(10*round+i/len(group))))
			}
			without = append(without, h.pauseOver(t, good))
			with = append(with, h.pauseOver(t, hostile))
		}
		slices.Sort(with)
		slices.Sort(without)
		more := with[1] - without[1]
		t.Logf("largest pause %7.3f ms, control %7.3f ms: %s to %s", with[1]*1e3, without[1]*1e3, names[group[0]], names[group[len(group)-1]])
		if more > 0.010*hostilePatience {
			t.Errorf("%s to %s: pauses are %.1f ms longer than the control's, want at most 10 ms (asserted at %d times)",
				names[group[0]], names[group[len(group)-1]], more*1e3, hostilePatience)
		}
	}
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// goodSpecimen is a good guest with bytes of its own, so that it is compiled.
func goodSpecimen(i int) hostiletest.Specimen {
	return hostiletest.Specimen{Bytes: wasmtest.Guest{Name: fmt.Sprintf("good-%d", i)}.Bytes()}
}

// pauseOver is the largest pause while two callers take specimens in turns, again and again.
func (h *hostileRun) pauseOver(t *testing.T, specimens []hostiletest.Specimen) float64 {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				h.torment(ctx, specimens[int(next.Add(1)-1)%len(specimens)])
			}
		})
	}
	pause := largestPause(t, stallRun)
	cancel()
	wg.Wait()
	return pause
}

// torment loads a specimen and calls it as often as it can before ctx ends, twenty times at most. How
// anything ends is other tests' business.
func (h *hostileRun) torment(ctx context.Context, sp hostiletest.Specimen) {
	s, err := loadedAs(ctx, h.rt, sp)
	if err != nil {
		return
	}
	for i := 0; i < 20 && ctx.Err() == nil; i++ {
		seed := uint64(hostiletest.TriggerSeed)
		if i%4 == 3 {
			seed = 1
		}
		h.call(s, 8, seed)
	}
	_ = s.Close() // checked where the same modules are taken one by one
}
