package admin_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	. "github.com/routerd/routerd/host/wasmtest"
)

const leastLoad = `{"scorers":[{"use":"builtin:least-load"}]}`

type revisionAnswer struct {
	Name     string
	Revision int
	State    string
	Digests  []string
}

type policyAnswer struct {
	Name             string
	Active, Previous int
	ActivatedBy      string `json:"activated_by"`
	Revisions        []struct {
		Revision int
		State    string
		By       string
		Spec     map[string]any
	}
}

func (b *bench) policy(t testing.TB, name string) (p policyAnswer) {
	t.Helper()
	b.call(t, "GET", "/v1/policies/"+name, nil).into(t, http.StatusOK, &p)
	return p
}

func TestARevisionIsMadeOnceActivatedAndRolledBack(t *testing.T) {
	b := newBench(t)
	var made revisionAnswer
	b.call(t, "PUT", "/v1/policies/mine", leastLoad).into(t, http.StatusCreated, &made)
	if diff := cmp.Diff(revisionAnswer{"mine", 1, "ready", []string{}}, made); diff != "" {
		t.Error(diff)
	}
	again := ` { "fallback": "builtin:kv-aware", "scorers": [ {"use": "builtin:least-load", "weight": 1} ] } `
	b.call(t, "PUT", "/v1/policies/mine", again).into(t, http.StatusOK, &made)
	if made.Revision != 1 {
		t.Errorf("the same specification made revision %d", made.Revision)
	}
	b.call(t, "PUT", "/v1/policies/mine", `{"scorers":[{"use":"builtin:round-robin"}]}`).into(t, http.StatusCreated, &made)
	if made.Revision != 2 {
		t.Errorf("got revision %d", made.Revision)
	}
	for _, c := range []struct{ path, body, want string }{
		{"activate", `{"revision":1}`, `{"active":1,"previous":0}`},
		{"activate", `{"revision":2}`, `{"active":2,"previous":1}`},
		{"rollback", ``, `{"active":1,"previous":2}`},
		{"rollback", `{}`, `{"active":2,"previous":1}`},
		{"rollback", `{"to":1}`, `{"active":1,"previous":2}`},
	} {
		a := b.call(t, "POST", "/v1/policies/mine/"+c.path, c.body)
		if a.status != http.StatusOK || strings.TrimSpace(a.body) != c.want {
			t.Errorf("%s %s: got %d %s, want %s", c.path, c.body, a.status, a.body, c.want)
		}
	}
	p := b.policy(t, "mine")
	if p.Active != 1 || p.ActivatedBy != "api" || len(p.Revisions) != 2 || p.Revisions[0].State != "active" || p.Revisions[1].State != "retired" {
		t.Errorf("got %+v", p)
	}
	if p.Revisions[0].Spec["scorers"] == nil || p.Revisions[0].By != "api" {
		t.Errorf("got %+v", p.Revisions[0])
	}
	var list struct{ Policies []policyAnswer }
	b.call(t, "GET", "/v1/policies", nil).into(t, http.StatusOK, &list)
	if len(list.Policies) != 2 || list.Policies[0].Name != "default" || list.Policies[1].Revisions[0].Spec != nil {
		t.Errorf("list: %+v", list)
	}
}

func TestARollbackWithoutHistoryIsAConflict(t *testing.T) {
	b := newBench(t)
	a := b.call(t, "POST", "/v1/policies/default/rollback", nil)
	a.refused(t, http.StatusConflict, "conflict", "no_history")
	if f := a.failure(t); f.Details.Step != "no_history" {
		t.Errorf("got %+v", f)
	}
	b.call(t, "POST", "/v1/policies/none/rollback", nil).refused(t, http.StatusNotFound, "not_found", "none")
}

func TestO2_ARefusedRevisionChangesNothing(t *testing.T) {
	b := newBench(t)
	b.worker(t, fleet.Record{Name: "w1", URL: "http://127.0.0.1:9"})
	b.stored(t, "trap", Guest{Name: "trap", Start: Op(0x00)}.Bytes())
	b.stored(t, "old", Guest{Name: "old", ABI: I32(2 << 16)}.Bytes())
	b.stored(t, "nan", Guest{Name: "nan", Score: I32(-3)}.Bytes())
	for _, c := range []struct {
		body   string
		status int
		code   string
		part   string
	}{
		{`{"scorers":[{"use":"module:trap"}]}`, 422, "E_INIT_TRAP", "start"},
		{`{"scorers":[{"use":"module:old"}]}`, 422, "E_ABI", "details"},
		{`{"scorers":[{"use":"module:nan"}]}`, 422, "E_TRAP", "self-test"},
		{`{"scorers":[{"use":"module:none"}]}`, 400, "invalid", "module:none"},
		{`{"scorers":[{"use":"module:none@sha256:12"}]}`, 400, "invalid", "sha256"},
		{`{"scorers":[{"use":"builtin:none"}]}`, 400, "invalid", "builtin:none"},
		{`{"scorers":[{"use":"module:trap","config":{"x":1}}]}`, 422, "E_CONFIGURE", ""},
		{`{"scorers":[]}`, 400, "invalid", "scorers"},
		{`{}`, 400, "invalid", "scorers"},
		{``, 400, "invalid", "JSON object"},
		{`[]`, 400, "invalid", "JSON object"},
		{`{"scorers":[{"use":"builtin:best"}`, 400, "invalid", "ends early"},
		{`{"scorers":[{"use":"builtin:least-load"}]} x`, 400, "invalid", "JSON"},
		{`{"scorers":[{"use":"builtin:least-load"}]} {}`, 400, "invalid", "one JSON object"},
		{`{"scorers":[{"use":"builtin:least-load","use":"builtin:best"}]}`, 400, "invalid", "scorers[0].use"},
		{`{"scorers":[{"Use":"builtin:least-load"}]}`, 400, "invalid", "Use"},
		{`{"scorers":[{"use":"builtin:least-load","weight":"1"}]}`, 400, "invalid", "weight"},
		{`{"scorers":[{"use":"builtin:least-load","weight":1e9}]}`, 400, "invalid", "-1e6 to 1e6"},
		{`{"filters":[{"use":"builtin:x"}],"scorers":[{"use":"builtin:least-load"}]}`, 400, "invalid", "filters"},
		{`{"scorers":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, 400, "invalid", "nests"},
	} {
		a := b.call(t, "PUT", "/v1/policies/default", c.body)
		if f := a.failure(t); a.status != c.status || f.Code != c.code || !strings.Contains(a.body, c.part) {
			t.Errorf("%.80s: got %d %s", c.body, a.status, a.body)
		}
	}
	if p := b.policy(t, "default"); p.Active != 1 || len(p.Revisions) != 1 {
		t.Errorf("the policy changed: %+v", p)
	}
}

func TestAnActivationNamesWhatIsWrong(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		path, body string
		status     int
		part       string
	}{
		{"default/activate", `{"revision":9}`, 404, "revision 9"},
		{"none/activate", `{"revision":1}`, 404, "none"},
		{"default/activate", ``, 400, "JSON object"},
		{"default/activate", `{}`, 400, "revision"},
		{"default/activate", `{"revision":0}`, 400, "revision"},
		{"default/activate", `{"revision":-1}`, 400, "revision"},
		{"default/activate", `{"revision":"1"}`, 400, "revision"},
		{"default/activate", `{"revision":1.5}`, 400, "revision"},
		{"default/activate", `{"revision":1e99}`, 400, "revision"},
		{"default/activate", `{"Revision":1}`, 400, "Revision"},
		{"default/activate", `{"revision":1,"force":true}`, 400, "force"},
		{"default/activate", `{"revision":1,"revision":1}`, 400, "once"},
		{"default/activate?x=1", `{"revision":1}`, 400, "no parameters"},
		{"default/rollback", `{"to":-1}`, 400, "to"},
		{"default/rollback", `{"to":7}`, 404, "revision 7"},
		{"default/rollback", `null`, 400, "JSON object"},
	} {
		a := b.call(t, "POST", "/v1/policies/"+c.path, c.body)
		if a.failure(t); a.status != c.status || !strings.Contains(a.body, c.part) {
			t.Errorf("%s %s: got %d %s", c.path, c.body, a.status, a.body)
		}
	}
}

func TestAWasmPolicyIsActivatedByItsDigest(t *testing.T) {
	b := newBench(t)
	b.call(t, "PUT", "/v1/modules/mine", guest("mine")).into(t, http.StatusCreated, nil)
	var made revisionAnswer
	b.call(t, "PUT", "/v1/policies/default", `{"scorers":[{"use":"module:mine"}]}`).into(t, http.StatusCreated, &made)
	if len(made.Digests) != 1 || !strings.HasPrefix(made.Digests[0], "sha256:") {
		t.Fatalf("got %+v", made)
	}
	b.call(t, "POST", "/v1/policies/default/activate", map[string]int{"revision": made.Revision}).into(t, http.StatusOK, nil)
	b.call(t, "POST", "/v1/policies/default/rollback", nil).into(t, http.StatusOK, nil)
	log := b.log.String()
	for _, want := range []string{
		`who=127.0.0.1:`, `what="PUT /v1/modules/{name}"`, `name=mine`, `what="POST /v1/policies/{name}/activate"`, "digest=" + made.Digests[0], "status=201",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit log lacks %s\n%s", want, log)
		}
	}
	if got := strings.Count(log, "admin change"); got != 4 {
		t.Errorf("%d audit lines for 4 changes", got)
	}
}
