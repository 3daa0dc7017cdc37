package host_test

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// formula is column 0 × 0.1 + column 1 ÷ 3 − √column 0, each product rounded by
// itself.
func formula() Guest {
	return Guest{
		Columns: []string{"load.active_requests", "kv.overlap_device"}, ScoreTypes: "iiiid",
		Score: Column(0,
			Tee(5), F64(0.1), Op(F64Mul),
			// Column 1 lies as far behind column 0 as the starts say.
			Get(3), Get(0), Get(0), Load32(abi.OffColumnStarts), Op(I32Add), Load32(4), Op(I32Add),
			Get(0), Get(0), Load32(abi.OffColumnStarts), Op(I32Add), Load32(0), Op(I32Sub), LoadF64(0),
			F64(3), Op(F64Div), Op(F64Add),
			Get(5), Op(0x9f), Op(F64Sub), // f64.sqrt
		),
	}
}

func formulaNative(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range out {
		out[i] = float64(float64(a[i]*0.1)+float64(b[i]/3)) - math.Sqrt(a[i])
	}
	return out
}

func TestEqualBitsNativeCompiledInterpretedUnmetered(t *testing.T) {
	wasm := formula().Bytes()
	cfg := host.DefaultConfig()
	cfg.CallDeadline = 5 * time.Second
	interpreted, err := host.NewInterpreted(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	compiled := stage(t, newRuntime(t), wasm, "")
	slowly, err := loaded(context.Background(), interpreted, "module:test", wasm)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 7, 64, 1000} {
		tab := liveTable(compiled.Columns(), n)
		a, b := tab.Column(abi.ColLoadActiveRequests), tab.Column(abi.ColKVOverlapDevice)
		want := formulaNative(a, b)
		for name, s := range map[string]policy.Scorer{"compiled": compiled, "interpreted": slowly} {
			got := make([]float64, n)
			if _, err := s.Score(context.Background(), tab, got, &policy.StageReport{}); err != nil {
				t.Fatal(err)
			}
			if !sameBits(want, got) {
				t.Errorf("%d rows, %s: other bits than native", n, name)
			}
		}
		if got := unmetered(t, wasm, a, b); !sameBits(want, got) {
			t.Errorf("%d rows, unmetered: other bits than native", n)
		}
	}
	if err := slowly.Close(); err != nil {
		t.Error(err)
	}
	if err := interpreted.Close(); err != nil {
		t.Error(err)
	}
}

// unmetered runs the module as it was written, without this package.
func unmetered(t *testing.T, wasm []byte, a, b []float64) []float64 {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx)
	mod, err := rt.Instantiate(ctx, wasm)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := abi.NewLayout(abi.LayoutSpec{Columns: []bool{true, true}, Capacity: len(a)})
	if err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, layout.Size)
	layout.PutHeader(frame)
	layout.PutCall(frame, len(a), 1, 0, false)
	for i := range a {
		binary.LittleEndian.PutUint64(frame[int(layout.Columns[0])+8*i:], math.Float64bits(a[i]))
		binary.LittleEndian.PutUint64(frame[int(layout.Columns[1])+8*i:], math.Float64bits(b[i]))
	}
	const at = 4096
	if !mod.Memory().Write(at, frame) {
		t.Fatal("the frame does not fit")
	}
	if _, err := mod.ExportedFunction("rp_score").Call(ctx, at); err != nil {
		t.Fatal(err)
	}
	out := make([]float64, len(a))
	for i := range out {
		bits, _ := mod.Memory().ReadUint64Le(at + layout.Scores + 8*uint32(i))
		out[i] = math.Float64frombits(bits) + 0
	}
	return out
}
