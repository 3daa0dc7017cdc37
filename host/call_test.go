package host_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host/wasmtest"
)

func TestScoresAreTheGuests(t *testing.T) {
	s := stage(t, newRuntime(t), good(), "")
	for _, n := range []int{1, 3, 8, 64, 1000, 1024} {
		want := make([]float64, n)
		for i := range want {
			want[i] = -float64(i) + 0
		}
		got, report, err := score(s, n)
		if err != nil {
			t.Fatalf("%d rows: %v", n, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%d rows (-want +got):\n%s", n, diff)
		}
		if report.Fuel == 0 {
			t.Errorf("%d rows: no fuel was counted", n)
		}
		if math.Signbit(got[0]) {
			t.Errorf("%d rows: −0 was not made 0", n)
		}
	}
}

func TestMedianForRowsWithoutOpinion(t *testing.T) {
	// 0/x − x/x: NaN for 0, finite otherwise.
	wasm := wasmtest.Guest{Score: wasmtest.Column(0, wasmtest.Tee(5), wasmtest.Get(5), wasmtest.Op(wasmtest.F64Div), wasmtest.Get(5), wasmtest.Op(wasmtest.F64Mul)), ScoreTypes: wasmtest.ColumnTypes}.Bytes()
	le := refused(t, newRuntime(t), wasm, "")
	if le.Code != "E_NAN" || le.Step != "self-test" {
		t.Fatalf("zero columns give only NaN: got %v", le)
	}
}
