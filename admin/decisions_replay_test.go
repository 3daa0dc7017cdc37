package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

type replayAnswer struct {
	ID     string
	Policy struct {
		Name     string
		Revision int
		Digests  []string
		Stages   []struct{ Kind, Use string }
	}
	Rows []struct {
		Worker      int
		Columns     map[string]float64
		Mask        int
		By          string
		StageScores []*float64 `json:"stage_scores"`
		Total       float64
	}
	Pick, Recorded *struct {
		Worker   int
		Name, By string
	}
	Same  *bool
	Fault *struct{ Stage, Code, Reason, Detail string }
	Fuel  uint64
	Us    int
}

func (b *bench) replayed(t testing.TB, id, ref string) (out replayAnswer) {
	t.Helper()
	b.call(t, "GET", "/v1/decisions/"+id+"?policy="+ref, nil).into(t, http.StatusOK, &out)
	if out.Same == nil || out.Recorded == nil {
		t.Fatalf("got %+v", out)
	}
	return out
}

// stagesOn adds a module and a revision made of it.
func (b *bench) stagesOn(t testing.TB, name string, wasm []byte, spec string) (revision int) {
	t.Helper()
	b.call(t, "PUT", "/v1/modules/"+name, wasm).into(t, http.StatusCreated, nil)
	var made revisionAnswer
	b.call(t, "PUT", "/v1/policies/default", spec).into(t, http.StatusCreated, &made)
	return made.Revision
}

func TestARevisionIsAskedAgainAndGivesTheSameBits(t *testing.T) {
	b := three(t)
	b.call(t, "POST", "/v1/policies/default/activate", `{"revision":3}`).into(t, http.StatusOK, nil)
	b.sel(t, "a", 16)
	b.sel(t, "b", 48)
	var was replayAnswer
	b.call(t, "GET", "/v1/decisions/b", nil).into(t, http.StatusOK, &was)
	if was.Same != nil || was.Recorded != nil {
		t.Errorf("a plain answer speaks of a replay: %+v", was)
	}
	for _, ref := range []string{"default@3", "default"} {
		got := b.replayed(t, "b", ref)
		if !*got.Same || got.Us != 0 || got.ID != was.ID {
			t.Errorf("%s: got %+v", ref, got)
		}
		if diff := cmp.Diff(was.Rows, got.Rows); diff != "" {
			t.Errorf("%s: rows (-recorded +replayed)\n%s", ref, diff)
		}
		if diff := cmp.Diff([]any{was.Policy, was.Pick}, []any{got.Policy, got.Pick}); diff != "" {
			t.Errorf("%s: %s", ref, diff)
		}
	}
}

func TestAnotherRevisionChoosesAnother(t *testing.T) {
	b := three(t)
	b.call(t, "POST", "/v1/policies/default/activate", `{"revision":3}`).into(t, http.StatusOK, nil)
	b.sel(t, "a", 16)
	b.sel(t, "b", 16) // where a is
	got := b.replayed(t, "b", "default@2")
	if *got.Same || got.Pick.Worker == got.Recorded.Worker || got.Pick.Name == "" || got.Pick.By != "policy" || got.Policy.Revision != 2 || got.Policy.Stages[0].Use != "builtin:least-load" {
		t.Errorf("got %+v, pick %+v, recorded %+v", got, got.Pick, got.Recorded)
	}
	if stats := b.rolled(t); stats.Revisions[2].Stats.Calls != 2 {
		t.Errorf("a replay was counted: %+v", stats.Revisions[2].Stats)
	}
}

func TestAReplayShowsWhatFiltersDropAndWhatFaults(t *testing.T) {
	b := three(t)
	two := func(drop ...Code) []byte { // drops rows of decisions over 2
		return Guest{Name: "drops", Kinds: []string{"filter"}, Filter: Cat(Get(0), Load32(abi.OffRows), I32(2), Op(I32Eq), If(drop...), I32(0))}.Bytes()
	}
	first := b.stagesOn(t, "first", two(SetMask(0, 0)), `{"filters":[{"use":"module:first"}],"scorers":[{"use":"builtin:least-load"}]}`)
	none := b.stagesOn(t, "none", two(SetMask(0, 0), SetMask(1, 0)), `{"filters":[{"use":"module:none","on_empty":"fail"}],"scorers":[{"use":"builtin:least-load"}]}`)
	traps := b.stagesOn(t, "traps", trapsFor1(), `{"scorers":[{"use":"module:traps"}]}`)
	b.sel(t, "a", 16)

	got := b.replayed(t, "a", ref(first))
	if r := got.Rows[0]; r.Mask != 0 || !strings.HasPrefix(r.By, "module:first@sha256:") || r.StageScores[0] != nil || got.Rows[1].Mask != 1 || got.Rows[1].By != "" || got.Rows[1].StageScores[0] == nil || got.Pick.Worker != got.Rows[1].Worker {
		t.Errorf("got %+v", got)
	}
	got = b.replayed(t, "a", ref(none))
	if got.Pick != nil || *got.Same || got.Fault == nil || got.Fault.Reason != "emptied" || !strings.HasPrefix(got.Fault.Stage, "module:none@") || got.Rows[1].Mask != 0 || got.Policy.Revision != none || len(got.Policy.Digests) != 1 {
		t.Errorf("got %+v, fault %+v", got, got.Fault)
	}
	got = b.replayed(t, "a", ref(traps))
	if got.Fault == nil || got.Fault.Code != "E_TRAP" || got.Pick.By != "fallback" || got.Policy.Revision != traps {
		t.Errorf("got %+v, fault %+v", got, got.Fault)
	}
	if p := b.rolled(t); p.State != "active" || p.Revisions[0].Stats.Calls != 1 {
		t.Errorf("got %+v", p)
	}
}

func ref(revision int) string { return "default@" + string(rune('0'+revision)) }

// What was not decided by the policy is not asked of it either.
func TestAReplayOfAPinnedRequestIsAnsweredByThePin(t *testing.T) {
	b := three(t)
	none := b.stagesOn(t, "none", Guest{Name: "none", Kinds: []string{"filter"}, Filter: Cat(SetMask(0, 0), I32(0))}.Bytes(),
		`{"filters":[{"use":"module:none","on_empty":"fail"}],"scorers":[{"use":"builtin:least-load"}]}`)
	zone := b.stagesOn(t, "zone", Guest{Name: "zone", Columns: []string{"label.zone"}}.Bytes(), `{"scorers":[{"use":"module:zone"}]}`)
	b.selWith(t, "a", func(r *core.Request) { r.Pin = &core.Pin{Name: "w2"} })
	for _, revision := range []int{1, 2, none, zone} {
		got := b.replayed(t, "a", ref(revision))
		if !*got.Same || got.Fault != nil || got.Pick == nil || got.Pick.By != "pin" || got.Pick.Name != "w2" || got.Fuel != 0 || len(got.Rows) != 1 || got.Rows[0].Mask != 1 {
			t.Errorf("revision %d: got %+v, pick %+v, fault %+v", revision, got, got.Pick, got.Fault)
		}
	}
}

func TestAReplayOfARevisionThatFailsTheRequestPicksNobody(t *testing.T) {
	b := three(t)
	fails := b.stagesOn(t, "traps", trapsFor1(), `{"scorers":[{"use":"module:traps","on_error":"fail"}]}`)
	b.call(t, "PUT", "/v1/policies/default", `{"scorers":[{"use":"module:traps"}]}`).into(t, http.StatusCreated, nil)
	b.sel(t, "a", 16)
	got := b.replayed(t, "a", ref(fails))
	if got.Pick != nil || *got.Same || got.Fault == nil || got.Fault.Code != "E_TRAP" || got.Fuel == 0 || got.Policy.Revision != fails || len(got.Policy.Stages) != 2 {
		t.Errorf("got %+v, fault %+v", got, got.Fault)
	}
	got = b.replayed(t, "a", ref(fails+1))
	if got.Pick == nil || got.Pick.By != "fallback" || got.Fault == nil || got.Fuel == 0 {
		t.Errorf("got %+v, fault %+v: want the fallback and the fuel of the call that trapped", got, got.Fault)
	}
}

// What ended the request then ends it again, and the answers are alike.
func TestAReplayOfARequestThatFailedFailsTheSame(t *testing.T) {
	b := three(t)
	traps := b.stagesOn(t, "traps", trapsFor1(), `{"scorers":[{"use":"module:traps","on_error":"fail"}]}`)
	none := Guest{Name: "none", Kinds: []string{"filter"}, Filter: Cat(Get(0), Load32(abi.OffRows), I32(2), Op(I32Eq), If(SetMask(0, 0), SetMask(1, 0)), I32(0))}.Bytes()
	empties := b.stagesOn(t, "none", none, `{"filters":[{"use":"module:none","on_empty":"fail"}],"scorers":[{"use":"builtin:least-load"}]}`)
	for _, revision := range []int{traps, empties} {
		b.call(t, "POST", "/v1/policies/default/activate", fmt.Sprintf(`{"revision":%d}`, revision)).into(t, http.StatusOK, nil)
		seed := uint64(1)
		_, err := b.core.Select(t.Context(), &core.Request{
			Kind: core.Book, SelectionID: "a", RequestID: "a", Surface: "test", Seed: &seed, Partition: fleet.PartitionKey{Model: "m", Group: "default"},
		})
		failed, ok := errors.AsType[*core.Error](err)
		if !ok || failed.DecisionID == "" {
			t.Fatalf("got %v, want an error with a decision", err)
		}
		var was, again, other replayAnswer
		b.call(t, "GET", "/v1/decisions/"+failed.DecisionID, nil).into(t, http.StatusOK, &was)
		b.call(t, "GET", "/v1/decisions/"+failed.DecisionID+"?policy="+ref(revision), nil).into(t, http.StatusOK, &again)
		if was.Pick != nil || again.Pick != nil || again.Recorded != nil || !*again.Same {
			t.Errorf("revision %d: got %+v, was %+v", revision, again, was)
		}
		if diff := cmp.Diff([]any{was.Fault, was.Fuel, was.Rows}, []any{again.Fault, again.Fuel, again.Rows}); diff != "" {
			t.Errorf("revision %d (-recorded +replayed)\n%s", revision, diff)
		}
		b.call(t, "GET", "/v1/decisions/"+failed.DecisionID+"?policy=default@1", nil).into(t, http.StatusOK, &other)
		if other.Pick == nil || *other.Same {
			t.Errorf("another revision: got %+v", other)
		}
		if got := b.tried(t, "/v1/policies/default?dry_run=1&decisions=1", leastLoad); got.Trial.Frames != 1 {
			t.Errorf("a dry run leaves out the request that failed: %+v", got.Trial)
		}
	}
}

// With that revision the request would have been refused.
func TestAReplayNamesAnOverrideThatTheRevisionDoesNotTake(t *testing.T) {
	b := three(t)
	takes := b.stagesOn(t, "takes", Guest{Name: "takes", Extra: `,"request_fields":["config.sign"],"config_schema":{"type":"object","properties":{"sign":{"type":"number","default":1}}}`}.Bytes(),
		`{"scorers":[{"use":"module:takes","config":{"sign":1}}]}`)
	b.call(t, "POST", "/v1/policies/default/activate", fmt.Sprintf(`{"revision":%d}`, takes)).into(t, http.StatusOK, nil)
	b.selWith(t, "a", func(r *core.Request) { r.Overrides = map[string]json.RawMessage{"sign": json.RawMessage("2")} })
	if got := b.replayed(t, "a", ref(takes)); !*got.Same {
		t.Errorf("got %+v", got)
	}
	a := b.call(t, "GET", "/v1/decisions/a?policy=default@2", nil)
	a.refused(t, http.StatusConflict, "conflict", `override \"sign\"`)
	if f := a.failure(t); f.Details.Step != "overrides" || f.Details.Item != "sign" || f.Details.Allowed == "" {
		t.Errorf("got %+v", f.Details)
	}
}

func TestAReplayNamesWhatIsWrong(t *testing.T) {
	b := three(t)
	b.sel(t, "a", 16)
	b.stagesOn(t, "zone", Guest{Name: "zone", Columns: []string{"label.zone"}}.Bytes(), `{"scorers":[{"use":"module:zone"}]}`)
	for _, c := range []struct {
		path   string
		status int
		code   string
		part   string
	}{
		{"a?policy=default@4", 409, "conflict", `"item":"label.zone"`},
		{"a?policy=default@9", 404, "not_found", "revision 9"},
		{"a?policy=none@1", 404, "not_found", "none"},
		{"none?policy=default@1", 404, "not_found", "1,024"},
		{"a?policy=", 400, "invalid", "NAME@REVISION"},
		{"a?policy=default@0", 400, "invalid", "NAME@REVISION"},
		{"a?policy=default@x", 400, "invalid", "NAME@REVISION"},
		{"a?policy=../x@1", 400, "invalid", "NAME@REVISION"},
		{"a?policy=@1", 400, "invalid", "NAME@REVISION"},
		{"a?revision=1", 400, "invalid", "policy"},
	} {
		b.call(t, "GET", "/v1/decisions/"+c.path, nil).refused(t, c.status, c.code, c.part)
	}
}
