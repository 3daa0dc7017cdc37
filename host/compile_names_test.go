package host_test

import (
	"runtime"
	"testing"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
)

// withNames is the good guest with a name section that claims to name n functions.
func withNames(n uint64) []byte {
	claim := Cat(Uleb(n), Uleb(1<<32-1))
	content := Cat(Uleb(4), Op('n', 'a', 'm', 'e'), Op(1), Uleb(uint64(len(claim))), claim)
	return append(good(), Cat(Op(0), Uleb(uint64(len(content))), content)...)
}

// The engine makes room for as many names as a section claims, before it reads
// one.
func TestNamesThatLieCostTheCompilerNothing(t *testing.T) {
	wasm := withNames(1 << 23)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := host.InProcess{}.Compile(t.Context(), wasm, wasm, "")
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || took > 32<<20 {
		t.Errorf("validating took %d MiB: %v; want at most 32 and no error", took>>20, err)
	}
}

func TestAModuleWhoseNamesLieLoads(t *testing.T) {
	r, _ := childRuntime(t, t.TempDir())
	useOnce(t, r, withNames(1<<32-1))
}
