package host_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// echo is a guest that returns one column as it finds it, after change.
func echo(column, missing string, change ...Code) []byte {
	return Guest{
		Columns: []string{column}, Missing: map[string]string{column: missing},
		Score: Column(0, change...), ScoreTypes: ColumnTypes,
	}.Bytes()
}

// partly is a table of n rows with 1, 2, 3, … in every column; the rows in
// missing have no signal.
func partly(set policy.ColumnSet, n int, missing ...int) *policy.Table {
	t := &policy.Table{}
	t.Reset(n, set)
	for _, name := range set.Names() {
		cells := t.NamedCells(name)
		for row, col := 0, cells.Fill(); row < n; row++ {
			col[row] = float64(row + 1)
		}
		for _, row := range missing {
			cells.Miss(row)
		}
	}
	return t
}

func scoresOf(t *testing.T, s policy.Scorer, tb *policy.Table) ([]float64, policy.StageReport) {
	t.Helper()
	var r policy.StageReport
	scores := make([]float64, tb.Len())
	if _, err := s.Score(context.Background(), tb, scores, &r); err != nil {
		t.Fatal(err)
	}
	return scores, r
}

func TestMissingSignalsAreWhatTheManifestSays(t *testing.T) {
	rt := newRuntime(t)
	for _, c := range []struct {
		name, column, missing string
		want                  float64
	}{
		{"a number", "kv.total_blocks", "-7.5", -7.5},
		{"in place of another default", "worker.age_ms", "0", 0},
		{"the default itself", "worker.age_ms", "1e12", abi.MissingAge},
		{"a label", "label.zone", "-1", -1},
		{"a label's number", "label_num.price", "1e300", 1e300},
		{"a column that no worker has", "engine.queued", "42", 42},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := stage(t, rt, echo(c.column, c.missing), "")
			got, _ := scoresOf(t, s, partly(s.Columns(), 5, 1, 3))
			if diff := cmp.Diff([]float64{1, c.want, 3, c.want, 5}, got); diff != "" {
				t.Errorf("some rows (-want +got):\n%s", diff)
			}
			tb := &policy.Table{}
			tb.Reset(2, s.Columns())
			if got, _ = scoresOf(t, s, tb); !cmp.Equal([]float64{c.want, c.want}, got) {
				t.Errorf("no row has a signal: got %v, want %v in both", got, c.want)
			}
			if got, _ = scoresOf(t, s, partly(s.Columns(), 2)); !cmp.Equal([]float64{1, 2}, got) {
				t.Errorf("all rows have one: got %v, want 1 and 2", got)
			}
		})
	}
}

func TestMissingIsEachStagesOwn(t *testing.T) {
	const column = "worker.age_ms"
	rt := newRuntime(t)
	own, other, plain := stage(t, rt, echo(column, "5"), ""), stage(t, rt, echo(column, "6"), ""), stage(t, rt, echo(column, "1e12"), "")
	tb := partly(own.Columns(), 3, 0)
	for _, c := range []struct {
		s    policy.Scorer
		want float64
	}{{own, 5}, {plain, abi.MissingAge}, {other, 6}, {own, 5}} {
		if got, _ := scoresOf(t, c.s, tb); !cmp.Equal([]float64{c.want, 2, 3}, got) {
			t.Errorf("got %v, want %v in row 0", got, c.want)
		}
	}
	if diff := cmp.Diff([]float64{abi.MissingAge, 2, 3}, tb.Named(column)); diff != "" {
		t.Errorf("the table (-want +got):\n%s", diff)
	}
}

func TestMissingNaNIsTheCanonicalOne(t *testing.T) {
	const reinterpret, i64Eq, convert = 0xbd, 0x51, F64ConvertU
	nan := int64(abi.CanonicalNaNBits)
	wasm := echo("label.zone", `"nan"`, Op(reinterpret), I64(nan), Op(i64Eq), Op(convert))
	s := stage(t, newRuntime(t), wasm, "")
	got, _ := scoresOf(t, s, partly(s.Columns(), 3, 1))
	if diff := cmp.Diff([]float64{0, 1, 0}, got); diff != "" {
		t.Errorf("rows with the canonical NaN (-want +got):\n%s", diff)
	}
}

func TestMissingNaNThatBecomesAScoreIsNoOpinion(t *testing.T) {
	s := stage(t, newRuntime(t), echo("kv.total_blocks", `"nan"`), "")
	for _, c := range []struct {
		name    string
		missing []int
		want    []float64
	}{
		{"one", []int{0}, []float64{3, 2, 3, 4}},
		{"half", []int{0, 3}, []float64{2.5, 2, 3, 2.5}},
	} {
		got, r := scoresOf(t, s, partly(s.Columns(), 4, c.missing...))
		if diff := cmp.Diff(c.want, got); diff != "" || r.Cleaned != len(c.missing) {
			t.Errorf("%s: %d cleaned (-want +got):\n%s", c.name, r.Cleaned, diff)
		}
	}
	_, err := s.Score(context.Background(), partly(s.Columns(), 4, 0, 1, 3), make([]float64, 4), &policy.StageReport{})
	var f *policy.Fault
	if !errors.As(err, &f) || f.Code != string(abi.ENaN) || !f.Counts {
		t.Errorf("most rows: got %v, want a counted E_NAN", err)
	}
}

func TestMissingOfAnUnknownColumnIsNeverWritten(t *testing.T) {
	manifest := `{"abi":"routerd.policy/v1","name":"later","version":"1.0.0","kinds":["scorer"],"columns":[
	 {"name":"load.active_requests"},{"name":"kv.some_later_column","required":false,"missing":3}]}`
	s := stage(t, newRuntime(t), Guest{Manifest: manifest}.Bytes(), "")
	if got, _, err := score(s, 3); err != nil || !cmp.Equal([]float64{0, -1, -2}, got) {
		t.Errorf("got %v, %v", got, err)
	}
}

// A guest that cannot stand what it asked for must not be found out by live
// traffic.
func TestSelfTestHoldsMissingSignals(t *testing.T) {
	const f64Ne, f64Eq = 0x62, 0x61
	rt := newRuntime(t)
	trapOnNaN := []Code{Tee(5), Get(5), Get(5), Op(f64Ne), If(Op(Unreachable))}
	stage(t, rt, echo("label.zone", "0", trapOnNaN...), "")
	for name, wasm := range map[string][]byte{
		"nan":    echo("label.zone", `"nan"`, trapOnNaN...),
		"number": echo("label.zone", "-31.25", Tee(5), Get(5), F64(-31.25), Op(f64Eq), If(Op(Unreachable))),
	} {
		t.Run(name, func(t *testing.T) {
			if le := refused(t, rt, wasm, ""); le.Step != host.StepSelfTest || le.Code != abi.ETrap {
				t.Errorf("got %v, want a trap in the self-test", le)
			}
		})
	}
}

// oneHandle is a policy source of one policy.
type oneHandle struct{ h *policy.Handle }

func (o oneHandle) Resolve(fleet.PartitionKey, string) (*policy.Handle, error) { return o.h, nil }

func TestMissingInALiveDecision(t *testing.T) {
	wasm := echo("label_num.price", "-7")
	s, err := loaded(t.Context(), newRuntime(t), "module:test", wasm)
	if err != nil {
		t.Fatal(err)
	}
	rev := revisionOf(t, s)
	h, err := policy.NewHandle(rev)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		native, err := policy.Builtin(policy.DefaultScorer, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Publish(revisionOf(t, native)); err != nil { // lets the guest go
			t.Error(err)
		}
		rev.Retire()
		<-rev.Closed()
	}()
	c := core.New(core.DefaultConfig(), core.SelectionHost{}, oneHandle{h}, core.NoIndex{}, slog.New(slog.DiscardHandler))
	key := fleet.PartitionKey{Model: "m"}.Normalised()
	if err := c.Prepare(t.Context(), key, 16); err != nil {
		t.Fatal(err)
	}
	var ch core.Change
	for name, labels := range map[string]map[string]string{"free": {"price": "0"}, "unpriced": nil, "odd": {"price": "cheap"}} {
		rec := fleet.Record{Name: name, Model: "m", URL: "http://" + name + ".test:8000", Labels: labels}
		ch.Upserts = append(ch.Upserts, core.Member{Record: rec, Lifecycle: core.Ready, BlockSize: 16})
	}
	if err := c.Commit(ch); err != nil {
		t.Fatal(err)
	}
	sel, err := c.Select(t.Context(), &core.Request{Partition: key})
	if err != nil || sel.Name != "free" {
		t.Fatalf("got %+v, %v; want the worker whose price is known to be 0", sel, err)
	}
	rec, _ := c.Decisions().Get(sel.DecisionID)
	for _, row := range rec.Rows {
		want := -7.0
		if row.Worker == fleet.IDFromName("free") {
			want = 0
		}
		if got := row.StageScores[0]; got == nil || *got != want || row.Columns["label_num.price"] != 0 {
			t.Errorf("worker %s: got %+v; want score %v and 0 in the record", row.Worker, row, want)
		}
	}
}

func TestMissingAllocatesNothing(t *testing.T) {
	s := stage(t, newRuntime(t), echo("label_num.price", "2"), "")
	tb, scores := partly(s.Columns(), 64, 7, 40), make([]float64, 64)
	var r policy.StageReport
	if n := testing.AllocsPerRun(100, func() {
		if _, err := s.Score(context.Background(), tb, scores, &r); err != nil {
			t.Fatal(err)
		}
	}); n != 0 || math.IsNaN(scores[7]) {
		t.Errorf("%v allocations a call; want 0", n)
	}
}
