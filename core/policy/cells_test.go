package policy_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// copied is what a stage reads that declares -7 for missing signals.
func copied(c *policy.Cells) []float64 {
	out := make([]float64, len(c.Values()))
	c.Copy(out, -7)
	return out
}

func ageAndZone(n int) (t *policy.Table, age, zone *policy.Cells) {
	var set policy.ColumnSet
	set.AddStd(abi.ColWorkerAgeMs)
	set.Add("label.zone")
	t = table(n, set)
	return t, t.Cells(abi.ColWorkerAgeMs), t.LabelCells("label.zone")
}

func TestCellsAreUnknownUntilFilled(t *testing.T) {
	_, age, zone := ageAndZone(2)
	for name, c := range map[string]struct {
		cells   *policy.Cells
		unknown float64
	}{"standard": {age, abi.MissingAge}, "label": {zone, 0}} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff([]float64{c.unknown, c.unknown}, c.cells.Values()); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
			if !c.cells.Missing(0) || !c.cells.Missing(1) {
				t.Error("a cell that nobody filled is known")
			}
			if diff := cmp.Diff([]float64{-7, -7}, copied(c.cells)); diff != "" {
				t.Errorf("copy (-want +got):\n%s", diff)
			}
			copy(c.cells.Fill(), []float64{3, 4})
			if c.cells.Missing(0) || c.cells.Missing(1) {
				t.Error("a filled cell is missing")
			}
			if diff := cmp.Diff([]float64{3, 4}, copied(c.cells)); diff != "" {
				t.Errorf("filled (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMissedRowsAloneAreMissing(t *testing.T) {
	const n = 130 // more than two words of rows
	_, age, _ := ageAndZone(n)
	want, values := make([]float64, n), age.Fill()
	for i := range values {
		values[i], want[i] = float64(i), float64(i)
	}
	for _, row := range []int{0, 63, 64, 129} {
		age.Miss(row)
		want[row] = -7
		if values[row] != abi.MissingAge || !age.Missing(row) {
			t.Errorf("row %d: got %v, missing %v; want the registry's value, missing", row, values[row], age.Missing(row))
		}
	}
	if age.Missing(1) || age.Missing(128) {
		t.Error("a row that was not missed is missing")
	}
	if diff := cmp.Diff(want, copied(age)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMissingIsForgottenByResetAndFill(t *testing.T) {
	tb, age, _ := ageAndZone(3)
	age.Fill()
	age.Miss(2)
	copy(age.Fill(), []float64{1, 2, 3})
	if diff := cmp.Diff([]float64{1, 2, 3}, copied(age)); diff != "" {
		t.Errorf("filled again (-want +got):\n%s", diff)
	}
	age.Miss(0)
	tb.Reset(2, tb.Set())
	age = tb.Cells(abi.ColWorkerAgeMs)
	copy(age.Fill(), []float64{4, 5})
	age.Miss(1)
	if diff := cmp.Diff([]float64{4, -7}, copied(age)); diff != "" {
		t.Errorf("after a reset (-want +got):\n%s", diff)
	}
	tb.Reset(2, tb.Set())
	age = tb.Cells(abi.ColWorkerAgeMs)
	age.Miss(1) // of a column that nobody filled
	if diff := cmp.Diff([]float64{-7, -7}, copied(age)); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
}

func TestCopyWritesTheBitsThatItIsTold(t *testing.T) {
	_, age, _ := ageAndZone(2)
	age.Fill()
	age.Miss(1)
	for _, bits := range []uint64{abi.CanonicalNaNBits, 1 << 63} {
		out := make([]float64, 2)
		age.Copy(out, math.Float64frombits(bits))
		if got := math.Float64bits(out[1]); got != bits {
			t.Errorf("got bits %#x, want %#x", got, bits)
		}
	}
}

func TestColumnsThatTheTableDoesNotHold(t *testing.T) {
	tb, _, _ := ageAndZone(2)
	if tb.Cells(abi.ColKVUsage) != nil || tb.LabelCells("label.rack") != nil || tb.NamedCells("kv.usage") != nil {
		t.Error("got cells of a column that is not in the set")
	}
	if tb.Fill(abi.ColKVUsage) != nil || tb.Column(abi.ColKVUsage) != nil || tb.Named("label.rack") != nil {
		t.Error("got values of a column that is not in the set")
	}
	if tb.NamedCells("worker.age_ms") != tb.Cells(abi.ColWorkerAgeMs) || tb.NamedCells("label.zone") != tb.LabelCells("label.zone") {
		t.Error("a name stands for other cells")
	}
}

func TestMissingAllocatesNothing(t *testing.T) {
	tb, _, _ := ageAndZone(100)
	out := make([]float64, 100)
	if n := testing.AllocsPerRun(100, func() {
		tb.Reset(100, tb.Set())
		for _, c := range []*policy.Cells{tb.Cells(abi.ColWorkerAgeMs), tb.LabelCells("label.zone")} {
			c.Fill()
			c.Miss(70)
			c.Copy(out, -1)
		}
	}); n != 0 {
		t.Errorf("%v allocations; want 0", n)
	}
}

func TestFillOfAColumnThatIsNotThereIsNil(t *testing.T) {
	tb, age, _ := ageAndZone(2)
	if tb.Cells(abi.ColKVUsage).Fill() != nil || tb.Fill(abi.ColKVUsage) != nil || tb.Column(abi.ColKVUsage) != nil {
		t.Error("a column that the table does not hold has values")
	}
	if len(age.Fill()) != 2 {
		t.Error("a column of the table has none")
	}
}
