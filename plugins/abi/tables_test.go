package abi_test

import (
	"math"
	"testing"

	"github.com/routerd/routerd/plugins/abi"
)

func TestFrameTableIsInOrderAndApart(t *testing.T) {
	size := map[string]uint32{"u64": 8, "f64": 8}
	for _, table := range [][]abi.FrameField{abi.FrameFields(), abi.AdapterFields()} {
		end := uint32(0)
		for _, f := range table {
			if f.Offset < end || f.Meaning == "" {
				t.Errorf("%+v begins before %d or says nothing", f, end)
			}
			end = f.Offset + max(size[f.Type], 4)
		}
		if end > abi.HeaderSize {
			t.Errorf("table ends at %d", end)
		}
	}
}

func TestNamesAreFoundAndUnique(t *testing.T) {
	for i, c := range abi.Columns() {
		if got, ok := abi.ColumnByName(c.Name); !ok || int(got) != i || got.String() != c.Name {
			t.Errorf("column %q is %d, want %d", c.Name, got, i)
		}
	}
	for i, f := range abi.Fields() {
		if got, ok := abi.FieldByName(f.Name); !ok || int(got) != i || got.String() != f.Name {
			t.Errorf("field %q is %d, want %d", f.Name, got, i)
		}
	}
	for i := range abi.Imports() {
		row := &abi.Imports()[i]
		if got, ok := abi.ImportByName(row.Module, row.Name); !ok || got != row {
			t.Errorf("import %s is not found or doubled", row.Key())
		}
	}
}

func TestImportsHaveTheirSignatures(t *testing.T) {
	for name, params := range map[string]int{"log": 3, "metric_add": 2, "metric_set": 2, "trace": 2} {
		if i, ok := abi.ImportByName(abi.ModuleRouterd, name); !ok || len(i.Params) != params || len(i.Results) != 0 {
			t.Errorf("%s: %+v", name, i)
		}
	}
	wasi := 0
	for _, i := range abi.Imports() {
		if i.Module != abi.ModuleWASI {
			continue
		}
		wasi++
		if want := i.Name != "proc_exit"; (len(i.Results) == 1) != want {
			t.Errorf("%s has results %v", i.Name, i.Results)
		}
	}
	if wasi != 46 {
		t.Errorf("%d functions of WASI preview 1, want 46", wasi)
	}
}

func TestCodesHaveNamesAndMeanings(t *testing.T) {
	seen := map[abi.HostCode]bool{}
	for _, c := range abi.HostCodes() {
		if seen[c.Code] || c.Meaning == "" {
			t.Errorf("%s doubled or without meaning", c.Code)
		}
		seen[c.Code] = true
	}
	if len(seen) != 24 {
		t.Errorf("%d host codes, want 24", len(seen))
	}
	for code, want := range map[abi.GuestCode]string{0: "ok", 1: "abstain", -1: "internal", -6: "not_bound", -7: "internal", 2: "unknown"} {
		if got := code.String(); got != want {
			t.Errorf("code %d is %q, want %q", code, got, want)
		}
	}
}

func TestKindsHaveTheirExports(t *testing.T) {
	for k, want := range map[abi.Kind]string{
		abi.KindScorer: "rp_score", abi.KindFilter: "rp_filter", abi.KindLoraScorer: "rp_lora",
		abi.KindPicker: "rp_pick", abi.KindPolicy: "rp_policy", "other": "",
	} {
		if got := k.Export(); got != want {
			t.Errorf("%s exports %q, want %q", k, got, want)
		}
	}
}

func TestTheTwoNaNsDiffer(t *testing.T) {
	unwritten, canonical := math.Float64frombits(abi.UnwrittenBits), math.Float64frombits(abi.CanonicalNaNBits)
	if !math.IsNaN(unwritten) || !math.IsNaN(canonical) || abi.UnwrittenBits == abi.CanonicalNaNBits {
		t.Error("presets must be two NaNs")
	}
	if math.Float64bits(math.NaN()) == abi.UnwrittenBits {
		t.Error("Go's NaN is the unwritten one")
	}
	if abi.UnwrittenBits>>51&1 != 1 {
		t.Error("the unwritten NaN is signalling: a copy may change it")
	}
}

func TestCallBudgetIsCappedWithoutOverflow(t *testing.T) {
	for _, c := range []struct {
		base, perRow, ceiling uint64
		rows                  int
		want                  uint64
	}{
		{100_000, 1_500, 10_000_000, 64, 196_000},
		{100_000, 1_500, 10_000_000, 100_000, 10_000_000},
		{100_000, 0, 10_000_000, 1 << 40, 100_000},
		{math.MaxUint64, 1, 10, 1, 10},
		{1, math.MaxUint64, 10, 2, 10},
		{5, 5, 9, 1, 9},
		{5, 5, 100, -3, 5},
		{0, 0, 0, 0, 0},
	} {
		if got := abi.CallBudget(c.base, c.perRow, c.ceiling, c.rows); got != c.want {
			t.Errorf("CallBudget(%d, %d, %d, %d) = %d, want %d", c.base, c.perRow, c.ceiling, c.rows, got, c.want)
		}
	}
}

func TestImportPriceGrowsWithBytesAndElements(t *testing.T) {
	s := abi.Fuel1()
	for _, c := range []struct {
		bytes, elements uint32
		want            uint64
	}{{0, 0, 500}, {15, 0, 500}, {512, 0, 532}, {4096, 16, 1556}, {math.MaxUint32, math.MaxUint32, 500 + math.MaxUint32/16 + 50*math.MaxUint32}} {
		if got := s.ImportPrice(c.bytes, c.elements); got != c.want {
			t.Errorf("ImportPrice(%d, %d) = %d, want %d", c.bytes, c.elements, got, c.want)
		}
	}
}
