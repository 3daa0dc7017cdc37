package host_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/smith/hostiletest"
)

// TestHostileModules takes a part of the generator's sequence through load and
// calls: 60 here, 500 under the tag e2e, 10,000 under e2e and soak.
func TestHostileModules(t *testing.T) {
	h := newHostileRun(t, hostileMemory, shortChildWall, hostileExamples(t)...)
	loads := 0
	before := heapNow()
	for n := range hostileModules {
		sp := h.specimen(n)
		sp.Name = fmt.Sprintf("module %d, %s", n, sp.Name)
		if sp.Want.Loads {
			loads++
		}
		h.take(t, sp)
	}
	if after := heapNow(); after > before+32<<20 {
		t.Errorf("heap: %d MiB after all modules, %d MiB before", after>>20, before>>20)
	}
	if missing := h.stepsUnseen(); len(missing) > 0 && hostileModules >= 500 {
		t.Errorf("no module was refused at the steps %q", missing)
	}
	t.Logf("%d modules, of which %d must load; at most %d MiB with guests; %d kinds of endings:\n%s",
		hostileModules, loads, h.peak>>20, len(h.endings), strings.Join(slices.Sorted(maps.Keys(h.endings)), "\n"))
}

// TestEachStaticLimitBitesAtItsNumber loads a module right at each limit of the
// ABI and sees one beyond it refused at the step that holds the limit.
func TestEachStaticLimitBitesAtItsNumber(t *testing.T) {
	h := newHostileRun(t, host.DefaultConfig().MemoryLimit, childWall)
	for _, b := range hostiletest.Bounds() {
		t.Run(b.Name, func(t *testing.T) {
			h.take(t, hostiletest.Specimen{Family: b.Name, Name: b.Name, Bytes: b.Module(b.Most), Want: hostiletest.Want{Loads: true}})
			h.take(t, hostiletest.Specimen{Family: b.Name, Name: b.Name, Bytes: b.Module(b.Most + 1), Want: hostiletest.Want{Refused: []hostiletest.Refusal{{Step: b.Step, Code: b.Code}}}})
		})
	}
}

// stepsUnseen are the steps that can refuse a module's bytes and refused none.
func (h *hostileRun) stepsUnseen() []string {
	unseen := slices.Clone(hostileSteps)
	for ending := range h.endings {
		_, step, _ := strings.Cut(ending, " at ")
		unseen = slices.DeleteFunc(unseen, func(s string) bool { return s == step })
	}
	return unseen
}

func heapNow() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// hostileExamples are real modules to damage: those that make plugins built,
// where the run has them.
func hostileExamples(t *testing.T) (examples [][]byte) {
	t.Helper()
	dir := os.Getenv("ROUTERD_PLUGINS")
	if dir == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		examples = append(examples, b)
	}
	return examples
}
