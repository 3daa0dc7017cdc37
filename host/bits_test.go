package host_test

import (
	"context"
	"encoding/binary"
	"errors"
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

// TestEqualBitsEverywhere: the same frame gives equal bits natively, compiled,
// interpreted, metered and not, on two instances, and after the frame has grown.
func TestEqualBitsEverywhere(t *testing.T) {
	wasm := growing().Bytes()
	cfg := host.DefaultConfig()
	cfg.CallDeadline, cfg.PoolWait = 5*time.Second, 5*time.Second
	interpreted, err := host.NewInterpreted(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	slowly, err := loaded(context.Background(), interpreted, "module:test", wasm)
	if err != nil {
		t.Fatal(err)
	}
	compiled, other, grown := stage(t, newRuntime(t), wasm, ""), stage(t, newRuntime(t), wasm, ""), stage(t, newRuntime(t), wasm, "")
	eventually(t, "a larger frame", func() bool { _, _, err := score(grown, 4000); return err == nil })
	for _, n := range []int{1, 7, 64, 1000} {
		tab := liveTable(compiled.Columns(), n)
		a, b := tab.Column(abi.ColLoadActiveRequests), tab.Column(abi.ColKVOverlapDevice)
		want := formulaNative(a, b)
		for name, s := range map[string]policy.Scorer{
			"compiled": compiled, "another instance": other, "interpreted": slowly, "after growth": grown,
		} {
			if got, _ := scoresOf(t, s, tab); !sameBits(want, got) {
				t.Errorf("%d rows, %s: other bits than native", n, name)
			}
		}
		if got := unmetered(t, wasm, a, b); !sameBits(want, got) {
			t.Errorf("%d rows, unmetered: other bits than native", n)
		}
	}
	if err := errors.Join(slowly.Close(), interpreted.Close()); err != nil {
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
