package meter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/routerd/routerd/host/meter"
)

const slice = 10_000

var (
	options  = meter.Options{MemoryMaxPages: 64, StartFuel: slice, Slice: slice}
	errSpent = errors.New("fuel spent")
)

func rewrite(t testing.TB, wasm []byte) []byte {
	t.Helper()
	out, err := decode(t, wasm).Rewrite(options)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// machine runs one metered module the way a host does.
type machine struct {
	mod     api.Module
	fuel    api.MutableGlobal
	rest    uint64 // what may still be granted
	granted uint64
	refuels int
	debt    uint64 // the largest that refuel met
	exactly bool   // grant no more than the debt, so that each check meets all that was charged since the last
}

// refuel is the imported function.
func (m *machine) refuel(_ context.Context, mod api.Module, _ []uint64) {
	g := mod.ExportedGlobal(meter.FuelGlobal).(api.MutableGlobal)
	size := uint64(slice)
	if m.exactly {
		size = 1
	}
	m.debt = max(m.debt, -g.Get())
	grant, ok := meter.Grant(int64(g.Get()), m.rest, size)
	if !ok {
		panic(errSpent)
	}
	m.refuels++
	m.rest -= grant
	m.granted += grant
	g.Set(g.Get() + grant)
}

func newRuntime(t testing.TB, m *machine) wazero.Runtime {
	t.Helper()
	return newRuntimeWith(t, m, wazero.NewRuntimeConfig().WithMemoryLimitPages(64))
}

func newRuntimeWith(t testing.TB, m *machine, config wazero.RuntimeConfig) wazero.Runtime {
	t.Helper()
	ctx := t.Context()
	rt := wazero.NewRuntimeWithConfig(ctx, config)
	t.Cleanup(func() { rt.Close(context.Background()) })
	_, err := rt.NewHostModuleBuilder(meter.RefuelModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(m.refuel), nil, nil).Export(meter.RefuelName).
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(context.Context, []uint64) {}), nil, nil).Export("nop").
		Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// newMachine instantiates a metered module with a budget for its start section.
func newMachine(t testing.TB, metered []byte, budget uint64) (*machine, error) {
	t.Helper()
	m := &machine{rest: budget, granted: slice}
	return m, m.start(t, newRuntime(t, m), metered)
}

// start instantiates a metered module without calling any export.
func (m *machine) start(t testing.TB, rt wazero.Runtime, metered []byte) error {
	t.Helper()
	mod, err := rt.InstantiateWithConfig(t.Context(), metered, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return err
	}
	m.mod = mod
	m.fuel = mod.ExportedGlobal(meter.FuelGlobal).(api.MutableGlobal)
	return nil
}

// call runs an export under a budget and returns the fuel used, in all.
func (m *machine) call(t testing.TB, budget uint64, name string, args ...uint64) ([]uint64, uint64, error) {
	t.Helper()
	first := min(budget, slice)
	m.rest, m.granted, m.refuels = budget-first, first, 0
	m.fuel.Set(first)
	res, err := m.mod.ExportedFunction(name).Call(t.Context(), args...)
	return res, m.granted - m.fuel.Get(), err
}

// plain instantiates the original.
func plain(t testing.TB, wasm []byte) api.Module {
	t.Helper()
	mod, err := newRuntime(t, &machine{}).Instantiate(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	return mod
}
