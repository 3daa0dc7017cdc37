package meter_test

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/routerd/routerd/host/meter"
)

// goGuest builds the Go reactor of testdata.
func goGuest(t testing.TB) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out, "./testdata/goguest")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, text)
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

func TestGoGuestFitsTheLimitsAndRunsMetered(t *testing.T) {
	wasm := goGuest(t)
	module := decode(t, wasm)
	t.Logf("largest of each: %v", meter.Stats(module))
	out, err := module.Rewrite(options256)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(out); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, metered %d (+%d %%)", len(wasm), len(out), 100*(len(out)-len(wasm))/len(wasm))
	interpreter := wazero.NewRuntimeConfigInterpreter()
	m := startGo(t, out, interpreter)
	res, used, err := m.call(t, 200_000_000, "rp_sum", 1000)
	if err != nil || math.Float64frombits(res[0]) != 249750 {
		t.Fatalf("rp_sum(1000) = %v, %v", res, err)
	}
	t.Logf("rp_sum(1000) used %d fuel", used)
	work, used, err := m.call(t, 200_000_000, "rp_work", 100)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("rp_work(100) used %d fuel, %d refuels", used, m.refuels)
	again, _, err := startGo(t, out, interpreter).call(t, 200_000_000, "rp_work", 100)
	if err != nil || again[0] != work[0] {
		t.Errorf("second instance: %v, %v; want %v", again, err, work)
	}
}

// startGo instantiates a metered Go reactor and initialises it.
func startGo(t testing.TB, out []byte, config wazero.RuntimeConfig) *machine {
	t.Helper()
	m := &machine{rest: 200_000_000}
	rt := newRuntimeWith(t, m, config.WithMemoryLimitPages(256))
	wasi_snapshot_preview1.MustInstantiate(t.Context(), rt)
	if err := m.start(t, rt, out); err != nil {
		t.Fatal(err)
	}
	if _, used, err := m.call(t, 200_000_000, "_initialize"); err != nil {
		t.Fatal(err)
	} else {
		t.Logf("_initialize used %d fuel", used)
	}
	return m
}

func BenchmarkGoGuest(b *testing.B) {
	wasm := goGuest(b)
	m := decode(b, wasm)
	b.Run("Decode", func(b *testing.B) {
		b.SetBytes(int64(len(wasm)))
		b.ReportAllocs()
		for b.Loop() {
			decode(b, wasm)
		}
	})
	b.Run("Rewrite", func(b *testing.B) {
		b.SetBytes(int64(len(wasm)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.Rewrite(options256); err != nil {
				b.Fatal(err)
			}
		}
	})
}

var options256 = meter.Options{MemoryMaxPages: 256, StartFuel: slice, Slice: slice}
