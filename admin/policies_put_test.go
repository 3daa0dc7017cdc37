package admin_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

type triedAnswer struct {
	revisionAnswer
	DryRun   bool `json:"dry_run"`
	Columns  []string
	Warnings []struct{ Code, Stage, Message string }
	Trial    struct {
		Base, Frames, Decided, Compared, Agreed, Disagreed int
		Changed                                            []struct {
			Decision        string
			Base, Candidate struct{ Row, Worker, Rank int }
		}
		Regret  struct{ Sum, Max float64 }
		Scorers []struct {
			Kind, Use        string
			Scored, Decisive int
		}
		Faults        map[string]int
		LackingFrames int `json:"lacking_frames"`
		Lacking       []string
	}
}

func (b *bench) tried(t testing.TB, path, body string) (out triedAnswer) {
	t.Helper()
	b.call(t, "PUT", path, body).into(t, http.StatusOK, &out)
	return out
}

// trapsFor1 is a scorer that traps for the seed of bench.sel.
func trapsFor1() []byte {
	return Guest{Name: "traps", Score: Cat(Get(0), LoadI64(abi.OffSeed), I64(1), Op(0x51), If(Op(Unreachable)), Column(0, Op(F64Neg))), ScoreTypes: ColumnTypes}.Bytes()
}

func TestADryRunTriesARevisionOnRecordedDecisions(t *testing.T) {
	b := three(t)
	b.call(t, "POST", "/v1/policies/default/activate", `{"revision":2}`).into(t, http.StatusOK, nil)
	for _, id := range []string{"a", "b", "c", "d"} {
		b.sel(t, id, 16)
	}
	before := b.rolled(t)
	got := b.tried(t, "/v1/policies/default?dry_run=1", `{"scorers":[{"use":"module:high"},{"use":"builtin:least-load","weight":0.5},{"use":"builtin:round-robin","weight":0}],"fallback":"builtin:least-load"}`)
	tr := got.Trial
	if !got.DryRun || got.Revision != 0 || got.State != "" || len(got.Digests) != 1 || tr.Base != 2 || tr.Frames != 4 || tr.Decided != 4 || tr.Compared != 4 || tr.Agreed+tr.Disagreed != 4 {
		t.Fatalf("got %+v", got)
	}
	// Loads are equal for every other request: the second and the fourth differ.
	if tr.Disagreed < 2 || len(tr.Changed) != tr.Disagreed || !strings.Contains("abcd", strings.Split(tr.Changed[0].Decision, ".")[0]) || tr.Regret.Max != 1 || tr.Changed[0].Base.Worker == tr.Changed[0].Candidate.Worker {
		t.Errorf("got %+v", tr)
	}
	if len(tr.Scorers) != 3 || tr.Scorers[0].Decisive < 2 || tr.Scorers[1].Scored != 4 || tr.Scorers[1].Decisive != 0 || tr.Scorers[2].Decisive != 0 {
		t.Errorf("scorers: %+v", tr.Scorers)
	}
	if diff := cmp.Diff([]string{"load.active_requests"}, got.Columns); diff != "" {
		t.Errorf("columns: %s", diff)
	}
	if len(got.Warnings) != 1 || got.Warnings[0].Stage != "scorers[2]" || got.Warnings[0].Code != "weight_never_decides" {
		t.Errorf("warnings: %+v", got.Warnings)
	}
	if diff := cmp.Diff(before.Revisions, b.rolled(t).Revisions); diff != "" || len(b.rolled(t).History) != len(before.History) {
		t.Errorf("something was kept: %s", diff)
	}
	if got := b.tried(t, "/v1/policies/default?dry_run=true&decisions=2", leastLoad); got.Trial.Frames != 2 || got.Trial.Agreed != 2 || got.Revision != 2 || got.State != "" {
		t.Errorf("the same as revision 2: got %+v", got)
	}
	if got := b.tried(t, "/v1/policies/default?dry_run=1&decisions=0", leastLoad); got.Trial.Frames != 0 {
		t.Errorf("got %+v", got.Trial)
	}
}

func TestADryRunOfANewPolicyTriesAllDecisions(t *testing.T) {
	b := three(t)
	b.sel(t, "a", 16)
	got := b.tried(t, "/v1/policies/fresh?dry_run=1", leastLoad)
	if got.Trial.Base != 0 || got.Trial.Decided != 1 || got.Trial.Compared != 0 {
		t.Errorf("got %+v", got.Trial)
	}
	b.call(t, "GET", "/v1/policies/fresh", nil).refused(t, http.StatusNotFound, "not_found", "fresh")
}

func TestADryRunCountsFaultsAndNamesColumnsThatWereNotRecorded(t *testing.T) {
	b := three(t)
	b.sel(t, "a", 16)
	b.call(t, "PUT", "/v1/modules/traps", trapsFor1()).into(t, http.StatusCreated, nil)
	got := b.tried(t, "/v1/policies/default?dry_run=1", `{"scorers":[{"use":"module:traps"}]}`)
	if got.Trial.Faults["trap"]+got.Trial.Faults["unreachable"] != 1 || got.Trial.Decided != 0 {
		t.Errorf("got %+v", got.Trial)
	}
	b.call(t, "PUT", "/v1/modules/zone", Guest{Name: "zone", Columns: []string{"label.zone"}}.Bytes()).into(t, http.StatusCreated, nil)
	got = b.tried(t, "/v1/policies/default?dry_run=1", `{"scorers":[{"use":"module:zone"}]}`)
	if got.Trial.LackingFrames != 1 || !slices.Equal(got.Trial.Lacking, []string{"label.zone"}) || !slices.Contains(got.Columns, "label.zone") || !slices.Contains(got.Columns, "kv.overlap_device") {
		t.Errorf("got %+v, columns %v", got.Trial, got.Columns)
	}
}

func TestADryRunNamesWhatIsWrong(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		query, body string
		status      int
		code, part  string
	}{
		{"?dry_run=maybe", leastLoad, 400, "invalid", "dry_run"},
		{"?decisions=5", leastLoad, 400, "invalid", "goes with dry_run"},
		{"?dry_run=1&decisions=1025", leastLoad, 400, "invalid", "0 to 1024"},
		{"?dry_run=1&decisions=x", leastLoad, 400, "invalid", "0 to 1024"},
		{"?dry_run=1", `{"scorers":[{"use":"module:none"}]}`, 400, "invalid", "module:none"},
		{"?dry_run=1", `{"scorers":[]}`, 400, "invalid", "scorers"},
		{"?dry_run=1&x=1", leastLoad, 400, "invalid", "dry_run, decisions"},
	} {
		b.call(t, "PUT", "/v1/policies/default"+c.query, c.body).refused(t, c.status, c.code, c.part)
	}
}

func TestARevisionIsMadeWithWarnings(t *testing.T) {
	b := newBench(t)
	b.call(t, "PUT", "/v1/modules/keeps", Guest{Name: "keeps", Kinds: []string{"filter"}}.Bytes()).into(t, http.StatusCreated, nil)
	flat := Guest{Name: "flat", Score: Column(0, Op(Drop), F64(1)), ScoreTypes: ColumnTypes, Extra: `,"score_range":{"min":1,"max":1}`}.Bytes()
	b.call(t, "PUT", "/v1/modules/flat", flat).into(t, http.StatusCreated, nil)
	body := `{"filters":[{"use":"module:keeps"}],"scorers":[{"use":"builtin:least-load"},{"use":"module:flat"}]}`
	for _, status := range []int{http.StatusCreated, http.StatusOK} {
		var made triedAnswer
		b.call(t, "PUT", "/v1/policies/default", body).into(t, status, &made)
		var got []string
		for _, w := range made.Warnings {
			got = append(got, w.Code+" "+w.Stage)
		}
		if diff := cmp.Diff([]string{"filter_fails_open filters[0]", "filter_fails_open filters[0]", "filter_fails_open filters[0]", "weight_never_decides scorers[1]"}, got); diff != "" || made.DryRun || made.Columns != nil {
			t.Errorf("%+v: %s", made, diff)
		}
	}
	if a := b.call(t, "PUT", "/v1/policies/default", leastLoad); !strings.Contains(a.body, `"warnings":[]`) {
		t.Errorf("got %s", a.body)
	}
}
