//go:build e2e

package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/routerd/routerd/host/wasmtest"
)

// The callers of the tests of rollouts.
const callers = 8

// O3: the memory after many swaps, against that after few.
const leakRatio = 1.1

// padded is a guest of 300 KiB, other bytes for each number.
func padded(number int) []byte {
	pad := make([]byte, 300<<10)
	copy(pad, fmt.Sprint("swap ", number))
	return Guest{
		Name: "padded", Columns: []string{"worker.id"}, Score: Column(0), ScoreTypes: ColumnTypes,
		After: func(m *Module) { m.Custom("pad", pad) },
	}.Bytes()
}

// swapTo makes a revision of another module the active one, each time another
// way.
func (r *router) swapTo(number int) {
	r.t.Helper()
	revision := r.revise("padded", padded(number))
	switch number % 3 {
	case 0:
		r.activate(revision)
	case 1:
		r.canary(revision, 50)
		r.promote(revision)
	case 2:
		r.shadow(revision, 1)
		r.promote(revision)
	}
}

// Under load policies are swapped many times, each time to a module that was
// never seen: no request fails, and nothing of what was before is left.
func TestO3_ManySwapsUnderLoadLeaveNothingBehind(t *testing.T) {
	r := startRouter(t, three(t))
	r.swapTo(0)
	noneFailed(t, burst(t, r, callers, 1100)) // fills the list of decisions
	r.idle("m", 10*time.Second)
	before := r.metrics()

	l := startLoad(r, callers, swapRate)
	began := time.Now()
	var memory []float64
	for i := range manySwaps {
		r.swapTo(i + 1)
		memory = append(memory, r.metrics()["process_resident_memory_bytes"])
	}
	took := time.Since(began)
	shots := l.end()
	noneFailed(t, shots)
	p50, p99 := percentiles(shots)
	tenth := manySwaps / 10
	second, last := middle(memory[tenth:2*tenth]), middle(memory[9*tenth:])
	t.Logf("%d swaps in %s; %d requests, p50 %s p99 %s; memory %.1f MiB in the second tenth, %.1f in the last: %+.1f %%",
		manySwaps, took, len(shots), p50, p99, second/(1<<20), last/(1<<20), 100*(last/second-1))
	if last > second*leakRatio+leakSlack {
		t.Errorf("memory went from %.0f to %.0f bytes, want at most %v times as much (and %v bytes)", second, last, leakRatio, float64(leakSlack))
	}
	if n := len(shots); n < int(took.Seconds()*swapRate)*9/10/patience {
		t.Errorf("%d requests in %s, want %d a second", n, took, swapRate)
	}
	eventually(t, time.Minute, func() error {
		now := r.metrics()
		for _, name := range []string{"routerd_plugin_modules", "go_goroutines"} {
			if now[name] > before[name] {
				return fmt.Errorf("%s is %v, want %v as before", name, now[name], before[name])
			}
		}
		return nil
	})
	if n := before["routerd_plugin_modules"]; n != 1 {
		t.Errorf("%v modules are loaded, want that of the active revision", n)
	}
	r.idle("m", 10*time.Second)
}

// middle is the median.
func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
