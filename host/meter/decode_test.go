package meter_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/routerd/routerd/host/meter"
)

func decode(t testing.TB, wasm []byte) *meter.Module {
	t.Helper()
	m, err := meter.Decode(wasm, meter.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDecodeExtractsWhatTheHostJudges(t *testing.T) {
	m := decode(t, richModule())
	add := meter.FuncType{Params: []meter.ValueType{meter.I32, meter.I32}, Results: []meter.ValueType{meter.I32}}
	log := meter.FuncType{Params: []meter.ValueType{meter.I32, meter.I32, meter.I32}}
	want := &meter.Module{
		Manifest: []byte(`{"abi":"routerd.policy/v1"}`),
		Imports:  []meter.Import{{Module: "routerd_v1", Name: "log", Type: log}},
		Exports: []meter.Export{
			{Name: "memory", Kind: meter.KindMemory},
			{Name: "rp_score", Kind: meter.KindFunc, Index: 1, Type: add},
		},
		HasMemory: true, MemoryMin: 1, MemoryMax: 4, HasStart: true,
		Names: map[uint32]string{1: "add", 2: "?!"},
	}
	opts := cmp.Options{cmpopts.IgnoreUnexported(meter.Module{}, meter.Import{}), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(want, m, opts); diff != "" {
		t.Errorf("module (-want +got):\n%s", diff)
	}
	if got, ok := m.Function("rp_score"); !ok || got.String() != "(i32, i32) -> (i32)" {
		t.Errorf("Function(rp_score) = %v, %v", got, ok)
	}
	if _, ok := m.Function("memory"); ok {
		t.Error("Function(memory) found a function")
	}
}

func TestFunctionNamesFollowTheRewrittenIndex(t *testing.T) {
	m := decode(t, richModule())
	names := m.FunctionNames()
	got := []string{names.Rewritten(0), names.Rewritten(1), names.Rewritten(2), names.Rewritten(3), names.Rewritten(9)}
	if diff := cmp.Diff([]string{"", "__refuel", "add", "?!", ""}, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestFunctionNamesAreBoundedAndTolerant(t *testing.T) {
	b := void(nil)
	entries := cat(uleb(5000))
	for i := range 5000 {
		entries = append(entries, cat(uleb(uint64(i)), str(strings.Repeat("n", 100)))...)
	}
	b.custom("name", cat(0, 1, 0, 1, uleb(uint64(len(entries))), entries))
	m := decode(t, b.bytes())
	if len(m.Names) != 4096 || len(m.Names[7]) != 64 {
		t.Errorf("%d names, one of %d bytes; want 4096 of 64", len(m.Names), len(m.Names[7]))
	}
	b = void(nil)
	b.custom("name", []byte{1, 200, 0xff})
	if m := decode(t, b.bytes()); len(m.Names) != 0 {
		t.Errorf("malformed names gave %v", m.Names)
	}
}

func TestModuleWithoutManifestDecodesForPacking(t *testing.T) {
	if m := decode(t, void(nil).bytes()); m.Manifest != nil {
		t.Errorf("manifest %q, want nil", m.Manifest)
	}
}

func TestPaddedIndicesAreAccepted(t *testing.T) {
	b := void(nil, 0x10, 0x80, 0x80, 0x80, 0x80, 0x00) // linkers pad call targets to five bytes
	decode(t, b.bytes())
}
