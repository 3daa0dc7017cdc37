package policy_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// recordable is a table with values, missing cells, fields and headers.
func recordable(n int, seed uint64) *policy.Table {
	var set policy.ColumnSet
	set.AddStd(abi.ColKVOverlapDevice, abi.ColEngineReportAgeMs, abi.ColWorkerID)
	set.Add("label.zone")
	t := table(n, set)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for _, name := range set.Names() {
		cells := t.NamedCells(name)
		if name == "engine.report_age_ms" && seed%2 == 0 {
			continue // unknown as a whole
		}
		col := cells.Fill()
		for i := range col {
			col[i] = rnd.Float64()
			if rnd.IntN(3) == 0 {
				cells.Miss(i)
			}
		}
	}
	for i := range t.Rows {
		t.Rows[i] = fleet.Worker{ID: fleet.WorkerID(i + 1)}
	}
	t.Seed, t.Sequence, t.Flags = seed, 7, 1
	t.Partition = fleet.PartitionKey{Model: "m", Group: "g"}
	t.SetField(abi.FieldISLTokens, 512)
	t.SetHeader("x-team", 42)
	return t
}

func TestARecordingGivesTheSameTableBack(t *testing.T) {
	t.Parallel()
	var rec policy.Recording
	for seed, n := range []int{1, 7, 64, 65, 200, 3} {
		want := recordable(n, uint64(seed))
		rec.Take(want)
		var got policy.Table
		if lacking := rec.Table(&got, want.Set()); lacking != nil {
			t.Fatalf("%d rows: columns %v are said to be lacking", n, lacking)
		}
		if d := cmp.Diff(cellsOf(want), cellsOf(&got)); d != "" {
			t.Errorf("%d rows:\n%s", n, d)
		}
		if got.Seed != want.Seed || got.Sequence != 7 || got.Flags != 1 || got.Partition != want.Partition ||
			got.Field(abi.FieldISLTokens) != 512 || got.Header("x-team") != 42 || !cmp.Equal(got.Rows, want.Rows) {
			t.Errorf("%d rows: the request or the rows differ", n)
		}
	}
}

func TestARecordingNamesTheColumnsThatItLacks(t *testing.T) {
	t.Parallel()
	var rec policy.Recording
	rec.Take(recordable(4, 1))
	var set policy.ColumnSet
	set.AddStd(abi.ColKVOverlapDevice, abi.ColKVUsage)
	set.Add("label.rack")
	var got policy.Table
	if d := cmp.Diff([]string{"kv.usage", "label.rack"}, rec.Table(&got, set)); d != "" {
		t.Error(d)
	}
	if !got.Cells(abi.ColKVUsage).Missing(0) {
		t.Error("a column that was not recorded has a signal")
	}
}

type cell struct {
	Value   float64
	Missing bool
}

func cellsOf(t *policy.Table) map[string][]cell {
	out := map[string][]cell{}
	set := t.Set()
	for _, name := range set.Names() {
		c := t.NamedCells(name)
		for i, v := range c.Values() {
			out[name] = append(out[name], cell{v, c.Missing(i)})
		}
	}
	return out
}
