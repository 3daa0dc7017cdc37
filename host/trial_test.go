package host_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// recorded are frames of 4 rows with the columns that lowest and highest read.
func recorded(seeds ...uint64) (out []*policy.Recording) {
	var set policy.ColumnSet
	set.AddStd(abi.ColLoadActiveRequests)
	for _, seed := range seeds {
		r := &policy.Recording{}
		r.Take(rowsOf4(set, seed))
		out = append(out, r)
	}
	return out
}

// bare is a pipeline whose fallback reads no more than load.active_requests.
func bare(uses ...string) policy.Spec {
	s := spec(uses...)
	s.Fallback = "builtin:least-load"
	return s
}

func bareBench(t testing.TB) *bench {
	t.Helper()
	b := openBench(t, t.TempDir())
	b.upload(t, "low", lowest())
	b.upload(t, "high", highest())
	b.upload(t, "bad", trapping())
	b.put(t, "default", bare("module:low"))
	b.put(t, "default", bare("module:high"))
	b.put(t, "default", bare("module:bad"))
	b.activate(t, "default", 2)
	return b
}

func TestATrialComparesAndKeepsNothing(t *testing.T) {
	b := bareBench(t)
	before, usage := b.source.List(), b.rt.Usage()
	got, err := b.source.Trial(t.Context(), "default", bare("module:high"), recorded(1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	if got.Revision != 3 || got.Base != 2 || got.Report.Frames != 3 || got.Report.Decided != 3 || got.Report.Agreed != 0 || got.Report.Regret.Sum != 9 {
		t.Errorf("got %+v, want revision 3 against 2, nothing agreed, a regret of 3 each", got)
	}
	if d := cmp.Diff(before, b.source.List()); d != "" {
		t.Errorf("policies (-before +after):\n%s", d)
	}
	if u := b.rt.Usage(); u != usage {
		t.Errorf("usage: got %+v, want %+v", u, usage)
	}
}

func TestATrialWarnsByWhatManifestsSay(t *testing.T) {
	b := bareBench(t)
	b.upload(t, "flat", Guest{Name: "flat", Score: Column(0, Op(Drop), F64(1)), ScoreTypes: ColumnTypes, Extra: `,"score_range":{"min":1,"max":1}`}.Bytes())
	got, err := b.source.Trial(t.Context(), "new", bare("module:low", "module:flat"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Warnings) != 1 || got.Warnings[0].Code != policy.WarnWeight || got.Warnings[0].Stage != "scorers[1]" || got.Base != 0 {
		t.Errorf("got %+v, want a warning of scorers[1]", got)
	}
	if _, err := b.source.Show("new"); !errors.Is(err, host.ErrNoPolicy) {
		t.Errorf("a trial made the policy: %v", err)
	}
}

func TestATrialThatCannotBeMadeSaysWhy(t *testing.T) {
	b := bareBench(t)
	b.upload(t, "trap", Guest{Score: Op(Unreachable)}.Bytes())
	usage := b.rt.Usage()
	_, err := b.source.Trial(t.Context(), "default", bare("module:trap"), recorded(1))
	var le *host.LoadError
	if !errors.As(err, &le) || le.Step != host.StepSelfTest {
		t.Errorf("got %v, want the step", err)
	}
	if u := b.rt.Usage(); u != usage {
		t.Errorf("usage: got %+v, want %+v", u, usage)
	}
	if err := b.modules.Delete("trap"); err != nil {
		t.Errorf("the module is still pinned: %v", err)
	}
}

func TestExplainGivesTheSameBitsAsTheDecision(t *testing.T) {
	b := bareBench(t)
	for _, revision := range []int{2, 3} {
		b.activate(t, "default", revision)
		want, _ := b.decide(t, "", 7)
		got, err := b.source.Explain(t.Context(), "default", 0, recorded(7)[0])
		if err != nil {
			t.Fatal(err)
		}
		d := got.Decision
		if got.Revision != revision || d.Row != want.Row || got.Worker.ID != fleet.WorkerID(1+3*(revision-2)) {
			t.Errorf("got revision %d, row %d, worker %d; want %d, %d", got.Revision, d.Row, got.Worker.ID, revision, want.Row)
		}
		if diff := cmp.Diff([][]float64{want.Totals, want.StageScores[0]}, [][]float64{d.Totals, d.StageScores[0]}); diff != "" {
			t.Errorf("scores (-want +got):\n%s", diff)
		}
	}
}

func TestExplainAsksAnyKeptRevision(t *testing.T) {
	b := bareBench(t)
	stats := b.show(t, "default").Stats
	got, err := b.source.Explain(t.Context(), "default", 3, recorded(7)[0])
	if err != nil || got.Revision != 3 || got.Decision.Row != 3 || len(got.Stages) == 0 {
		t.Errorf("got %+v (%v), want row 3 by revision 3", got, err)
	}
	// A trap is answered by the fallback, as it would have been.
	got, err = b.source.Explain(t.Context(), "default", 4, recorded(badSeed)[0])
	if err != nil || got.Decision.By != policy.ByFallback || got.Decision.Fault == nil || got.Decision.Row != 0 {
		t.Errorf("got %+v (%v), want the fallback's row 0 with the fault", got, err)
	}
	if d := cmp.Diff(stats, b.show(t, "default").Stats); d != "" {
		t.Errorf("the active revision's counts:\n%s", d)
	}
	if u := b.rt.Usage(); u.Pools > 2 {
		t.Errorf("usage: got %+v, want what was asked closed again", u)
	}
}

func TestExplainNamesTheColumnsThatWereNotRecorded(t *testing.T) {
	b := bareBench(t)
	n := b.put(t, "default", spec("builtin:kv-aware")).Number
	_, err := b.source.Explain(t.Context(), "default", n, recorded(7)[0])
	var lacking *host.LackingError
	if !errors.As(err, &lacking) || lacking.Revision != n || len(lacking.Columns) == 0 {
		t.Fatalf("got %v, want the columns", err)
	}
	for _, c := range lacking.Columns {
		if c == "load.active_requests" {
			t.Errorf("%q was recorded", c)
		}
	}
	for want, ask := range map[error]struct {
		name     string
		revision int
	}{host.ErrNoPolicy: {"nobody", 1}, host.ErrNoRevision: {"default", 99}} {
		if _, err := b.source.Explain(t.Context(), ask.name, ask.revision, recorded(1)[0]); !errors.Is(err, want) {
			t.Errorf("%+v: got %v, want %v", ask, err, want)
		}
	}
	if _, err := b.source.Explain(context.Background(), "default", 2, &policy.Recording{}); err == nil {
		t.Error("an empty recording was explained")
	}
}
