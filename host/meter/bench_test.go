package meter_test

import (
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// scoreKernel is f(n): for each of n rows, two loads, arithmetic, a branch and a store: the shape of a scorer.
func scoreKernel() []byte {
	body := cat(
		0x03, 0x40,
		get(1), get(1), 0x2b, 3, 0, f64c(0.75), 0xa2, get(1), 0x2b, 3, uleb(8192), 0xa0, 0x22, 2, 0x39, 3, uleb(16384),
		get(2), get(3), 0x64, 0x04, 0x40, get(2), set(3), 0x0b,
		get(1), i32c(8), 0x6a, set(1), get(0), i32c(1), 0x6b, 0x22, 0, 0x0d, 0, 0x0b)
	return fnModule(one, nil, [][]byte{group(1, i32), group(2, f64)}, body).bytes()
}

// BenchmarkScore compares a kernel over 1,000 rows in its original and its metered form.
func BenchmarkScore(b *testing.B) {
	wasm := scoreKernel()
	b.Run("plain", func(b *testing.B) { benchCalls(b, plain(b, wasm), nil, "f", 1000) })
	b.Run("metered", func(b *testing.B) {
		m, err := newMachine(b, rewrite(b, wasm), 0)
		if err != nil {
			b.Fatal(err)
		}
		benchCalls(b, m.mod, m, "f", 1000)
	})
}

// BenchmarkGoLoop does the same for a loop in a Go guest.
func BenchmarkGoLoop(b *testing.B) {
	wasm := goGuest(b)
	b.Run("plain", func(b *testing.B) { benchCalls(b, plainGo(b, wasm), nil, "rp_sum", 1000) })
	out, err := decode(b, wasm).Rewrite(options256)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("metered", func(b *testing.B) {
		m := startGo(b, out, wazero.NewRuntimeConfig())
		benchCalls(b, m.mod, m, "rp_sum", 1000)
	})
	b.Run("plain score", func(b *testing.B) { benchCalls(b, plainGo(b, wasm), nil, "rp_score", 1000) })
	b.Run("metered score", func(b *testing.B) {
		m := startGo(b, out, wazero.NewRuntimeConfig())
		benchCalls(b, m.mod, m, "rp_score", 1000)
	})
	b.Run("plain work", func(b *testing.B) { benchCalls(b, plainGo(b, wasm), nil, "rp_work", 100) })
	b.Run("metered work", func(b *testing.B) {
		m := startGo(b, out, wazero.NewRuntimeConfig())
		benchCalls(b, m.mod, m, "rp_work", 100)
	})
}

func plainGo(b testing.TB, wasm []byte) api.Module {
	b.Helper()
	rt := newRuntimeWith(b, &machine{}, wazero.NewRuntimeConfig().WithMemoryLimitPages(1024))
	wasi_snapshot_preview1.MustInstantiate(b.Context(), rt)
	mod, err := rt.InstantiateWithConfig(b.Context(), wasm, wazero.NewModuleConfig().WithStartFunctions("_initialize"))
	if err != nil {
		b.Fatal(err)
	}
	return mod
}

func benchCalls(b *testing.B, mod api.Module, m *machine, name string, arg uint64) {
	b.Helper()
	f, stack := mod.ExportedFunction(name), make([]uint64, 1)
	for b.Loop() {
		if m != nil {
			m.rest = 1 << 40
			m.fuel.Set(slice)
		}
		stack[0] = arg
		if err := f.CallWithStack(b.Context(), stack); err != nil {
			b.Fatal(err)
		}
	}
}
