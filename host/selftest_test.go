package host_test

import (
	"testing"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// splitMix is the i-th value of the sequence with seed 0.
func splitMix(i uint64) uint64 {
	z := i * 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func TestGuestCannotKnowTheSelfTestsSeeds(t *testing.T) {
	// Behaves for the seeds that a host without chance would draw.
	known := I32(0)
	for _, n := range []uint64{1, 8, 64, 1000} {
		known = Cat(known, Get(0), LoadI64(abi.OffSeed), I64(int64(splitMix(n+1))), Op(0x51, 0x72)) // i64.eq, i32.or
	}
	g := Guest{ScoreTypes: ColumnTypes, Score: Cat(known, Op(I32Eqz), If(Op(Unreachable)), Column(0, Op(F64Neg)))}
	le := refused(t, newRuntime(t), g.Bytes(), "")
	if le.Step != host.StepSelfTest || le.Code != abi.ETrap {
		t.Errorf("got %v, want E_TRAP in the self-test", le)
	}
}

func TestSelfTestLooksLiveInEveryRound(t *testing.T) {
	const lt, gt, ne = 0x63, 0x64, 0x62 // f64.lt, f64.gt, f64.ne
	trapIf := func(value Code, compare byte, with float64) Code {
		return Cat(value, F64(with), Op(compare), If(Op(Unreachable)))
	}
	g := Guest{
		Columns: []string{"worker.id"}, ScoreTypes: ColumnTypes, Extra: `,"request_fields":["now_ms","decision_id","n_total_workers"]`,
		Score: Cat(
			trapIf(Field(0), lt, 1.7e12), trapIf(Field(0), gt, 1e13),
			trapIf(Field(1), lt, 1), trapIf(Field(1), gt, 1e9),
			Get(0), Load32(abi.OffRows), Op(F64ConvertU), Field(2), Op(ne), If(Op(Unreachable)),
			Column(0, Tee(5), F64(1), Op(lt), If(Op(Unreachable)), Get(5)),
		),
	}
	stage(t, newRuntime(t), g.Bytes(), "")
}
