package pack_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/pack"
	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

const manifest = `{"abi":"routerd.policy/v1","name":"packed","version":"1.0.0","kinds":["scorer"],
 "columns":[{"name":"load.active_requests"}],"limits":{"memory_pages":8,"max_rows":200,"fuel_base":1}}`

func TestPackedModuleLoadsWithTheMeasuredLimits(t *testing.T) {
	plain := wasmtest.Guest{Manifest: "-"}.Bytes()
	wasm, report, err := pack.Pack(context.Background(), plain, []byte(manifest), nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := host.Inspect(wasm)
	if err != nil {
		t.Fatal(err)
	}
	want := abi.Limits{MemoryPages: 8, MaxRows: 200, FuelBase: report.FuelBase, FuelPerRow: report.FuelPerRow}
	if info.Manifest.Limits != want || info.Digest != report.Digest || info.Size != report.Size {
		t.Errorf("got %+v and %+v, want limits %+v", info, report, want)
	}
	for i, rows := range report.Measured.Rows {
		budget := abi.CallBudget(report.FuelBase, report.FuelPerRow, abi.DefaultFuelCap, rows)
		if used := report.Measured.Fuel[i]; budget < 2*used || used == 0 {
			t.Errorf("%d rows: budget %d for %d measured, want twice", rows, budget, used)
		}
	}
	rt, err := host.New(host.DefaultConfig(), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	s, err := rt.Stage(context.Background(), abi.KindScorer, "module:packed", wasm, report.Digest, nil)
	if err != nil {
		t.Fatalf("the packed module does not load: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	again, _, err := pack.Pack(context.Background(), wasm, []byte(manifest), nil)
	if err != nil || host.Digest(again) != report.Digest {
		t.Errorf("packing the packed module again: got %s (%v), want the same bytes", host.Digest(again), err)
	}
}

func TestPackKeepsLargerLimitsThatTheManifestDeclares(t *testing.T) {
	plain := wasmtest.Guest{Manifest: "-"}.Bytes()
	packed := func(limits string) *pack.Report {
		t.Helper()
		text := strings.Replace(manifest, `,"fuel_base":1`, limits, 1)
		wasm, report, err := pack.Pack(context.Background(), plain, []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := host.Inspect(wasm)
		if err != nil {
			t.Fatal(err)
		}
		if l := info.Manifest.Limits; l.FuelBase != report.FuelBase || l.FuelPerRow != report.FuelPerRow {
			t.Errorf("%s: limits %+v, report %+v", limits, l, report)
		}
		return report
	}
	measured := packed("")
	if measured.BaseDeclared || measured.PerRowDeclared || measured.FuelBase >= abi.DefaultFuelBase || measured.FuelPerRow >= abi.DefaultFuelPerRow {
		t.Fatalf("nothing declared: got %+v, want what was measured", measured)
	}
	for _, c := range []struct {
		limits       string
		base, perRow uint64
		own          [2]bool // the limit is the manifest's
	}{
		{`,"fuel_base":500001`, 500_001, measured.FuelPerRow, [2]bool{true, false}},
		{`,"fuel_per_row":900`, measured.FuelBase, 900, [2]bool{false, true}},
		{`,"fuel_base":500001,"fuel_per_row":900`, 500_001, 900, [2]bool{true, true}},
		{`,"fuel_base":1,"fuel_per_row":1`, measured.FuelBase, measured.FuelPerRow, [2]bool{}},
	} {
		got := packed(c.limits)
		if got.FuelBase != c.base || got.FuelPerRow != c.perRow || [2]bool{got.BaseDeclared, got.PerRowDeclared} != c.own {
			t.Errorf("%s: got %+v, want base %d, per row %d, own %v", c.limits, got, c.base, c.perRow, c.own)
		}
	}
}

func TestPackNamesWhatIsWrong(t *testing.T) {
	var me *abi.ManifestError
	if _, _, err := pack.Pack(context.Background(), wasmtest.Guest{Manifest: "-"}.Bytes(), []byte(`{"abi":"x"}`), nil); !errors.As(err, &me) {
		t.Errorf("bad manifest: got %v", err)
	}
	var le *host.LoadError
	trap := wasmtest.Guest{Manifest: "-", Score: wasmtest.Op(wasmtest.Unreachable)}.Bytes()
	if _, _, err := pack.Pack(context.Background(), trap, []byte(manifest), nil); !errors.As(err, &le) || le.Step != host.StepSelfTest {
		t.Errorf("module that traps: got %v", err)
	}
	if _, _, err := pack.Pack(context.Background(), []byte("no module"), []byte(manifest), nil); err == nil || !strings.Contains(err.Error(), "header") {
		t.Errorf("no module: got %v", err)
	}
}

func TestEveryKindIsMeasured(t *testing.T) {
	plain := wasmtest.Guest{Manifest: "-", Kinds: []string{"filter", "lora-scorer", "picker", "policy"}}.Bytes()
	text := strings.Replace(manifest, `["scorer"]`, `["filter","lora-scorer","picker","policy"]`, 1)
	wasm, report, err := pack.Pack(context.Background(), plain, []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.New(host.DefaultConfig(), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	for _, kind := range []abi.Kind{abi.KindFilter, abi.KindLoraScorer, abi.KindPicker, abi.KindPolicy} {
		s, err := rt.Stage(context.Background(), kind, "module:packed", wasm, report.Digest, nil)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The operator's list is the router's; that the module can be packed is no leave
// to read the header.
func TestPackRunsAModuleThatReadsHeaders(t *testing.T) {
	plain := wasmtest.Guest{Manifest: "-"}.Bytes()
	reads := func(fields string) []byte {
		return []byte(strings.Replace(manifest, `"limits"`, `"request_fields":[`+fields+`],"limits"`, 1))
	}
	wasm, _, err := pack.Pack(context.Background(), plain, reads(`"isl_tokens","header.x-tier","header.x-team"`), nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := host.Inspect(wasm)
	if err != nil || !slices.Contains(info.Manifest.RequestFields, "header.x-tier") {
		t.Errorf("got %+v, %v", info, err)
	}
	for _, name := range []string{"authorization", "cookie", "x-routerd-pin"} {
		if _, _, err := pack.Pack(context.Background(), plain, reads(`"header.`+name+`"`), nil); err == nil || !strings.Contains(err.Error(), "request_fields[0]") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
