package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
)

type rolloutAnswer struct {
	Active, Previous int
	Canary           *struct {
		Revision int
		Percent  float64
		By, Who  string
		Since    string
		Header   *struct{ Name, Value string }
		Stats    struct{ Calls uint64 }
	}
	Shadow *struct {
		Revision int
		Sample   float64
		Who      string
		Report   map[string]any
	}
}

type rolledPolicy struct {
	rolloutAnswer
	State     string
	Revisions []struct {
		Revision int
		State    string
		Stats    *struct{ Calls uint64 }
	}
	Limits struct {
		Modules []map[string]any
		Runtime map[string]any
	}
	History []struct {
		At, Who, What, Why string
		Revision, Previous int
	}
}

// three is a bench whose default policy has the revisions 1 (active) to 3, and
// two workers.
func three(t testing.TB, change ...func(*admin.Config, *admin.Parts)) *bench {
	t.Helper()
	b := newBench(t, change...)
	b.call(t, "PUT", "/v1/modules/high", Guest{Name: "high", Score: Column(0), ScoreTypes: ColumnTypes}.Bytes()).into(t, http.StatusCreated, nil)
	b.call(t, "PUT", "/v1/policies/default", leastLoad).into(t, http.StatusCreated, nil)
	b.call(t, "PUT", "/v1/policies/default", `{"scorers":[{"use":"module:high"}]}`).into(t, http.StatusCreated, nil)
	for id := range fleet.WorkerID(2) {
		b.worker(t, fleet.Record{ID: id + 1, Name: fmt.Sprintf("w%d", id+1), URL: fmt.Sprintf("http://127.0.0.1:%d", id+1), Model: "m"})
	}
	return b
}

func (b *bench) rollout(t testing.TB, verb, body string) (out rolloutAnswer) {
	t.Helper()
	b.call(t, "POST", "/v1/policies/default/"+verb, body).into(t, http.StatusOK, &out)
	return out
}

func (b *bench) rolled(t testing.TB) (p rolledPolicy) {
	t.Helper()
	b.call(t, "GET", "/v1/policies/default", nil).into(t, http.StatusOK, &p)
	return p
}

func TestACanaryIsSetChangedPromotedAndShown(t *testing.T) {
	b := three(t)
	got := b.rollout(t, "canary", `{"revision":2,"percent":12.5,"by":"session","header":{"name":"X-Canary","value":"yes"}}`)
	if c := got.Canary; got.Active != 1 || c == nil || c.Revision != 2 || c.Percent != 12.5 || c.By != "session" || c.Who != "api" || c.Since == "" || c.Header == nil || *c.Header != (struct{ Name, Value string }{"x-canary", "yes"}) || got.Shadow != nil {
		t.Fatalf("got %+v", got)
	}
	got = b.rollout(t, "canary", `{"revision":2,"percent":100}`)
	if c := got.Canary; c.Percent != 100 || c.By != "request" || c.Header != nil {
		t.Errorf("got %+v", c)
	}
	b.sel(t, "one", 16)
	p := b.rolled(t)
	if p.State != "active" || p.Canary.Stats.Calls != 1 || p.Revisions[1].State != "canary" || p.Revisions[1].Stats.Calls != 1 || p.Revisions[0].Stats.Calls != 0 || p.Revisions[2].Stats != nil {
		t.Errorf("got %+v, canary %+v", p, p.Canary)
	}
	if got := b.rollout(t, "promote", ""); got.Active != 2 || got.Previous != 1 {
		t.Errorf("got %+v", got)
	}
	if p := b.rolled(t); p.Canary != nil || p.Revisions[1].State != "active" {
		t.Errorf("got %+v", p)
	}
	b.call(t, "POST", "/v1/policies/default/promote", "{}").refused(t, http.StatusConflict, "conflict", "no_rollout")
}

func TestACanaryIsEndedByRollbackAndByRevision0(t *testing.T) {
	b := three(t)
	b.rollout(t, "canary", `{"revision":2,"header":{"name":"x-a","value":"1"}}`)
	if got := b.rollout(t, "rollback", ""); got.Active != 1 {
		t.Errorf("got %+v", got)
	}
	b.rollout(t, "canary", `{"revision":3,"percent":0}`)
	for range 2 { // ending what has ended changes nothing
		if got := b.rollout(t, "canary", `{"revision":0}`); got.Canary != nil {
			t.Errorf("got %+v", got)
		}
	}
	var whats []string
	for _, c := range b.rolled(t).History {
		if c.At == "" {
			t.Errorf("no time: %+v", c)
		}
		whats = append(whats, fmt.Sprintf("%s %s %d", c.Who, c.What, c.Revision))
	}
	want := []string{"built-in seed 1", "api put 2", "api put 3", "api canary 2", "api rollback 1", "api canary 3", "api canary_end 3"}
	if diff := cmp.Diff(want, whats[len(whats)-len(want):]); diff != "" && !strings.HasSuffix(strings.Join(whats, ","), strings.Join(want[1:], ",")) {
		t.Error(diff)
	}
	if log := b.log.String(); !strings.Contains(log, `what="POST /v1/policies/{name}/canary"`) {
		t.Error("a canary leaves no audit line")
	}
}

func TestAShadowIsSetReportedAndEnded(t *testing.T) {
	b := three(t)
	got := b.rollout(t, "shadow", `{"revision":3,"sample":0.5}`)
	if s := got.Shadow; s == nil || s.Revision != 3 || s.Sample != 0.5 || s.Who != "api" || got.Canary != nil {
		t.Fatalf("got %+v", got)
	}
	if got := b.rollout(t, "shadow", `{"revision":3}`); got.Shadow.Sample != 1 {
		t.Errorf("got %+v", got.Shadow)
	}
	b.sel(t, "one", 16)
	p := b.rolled(t)
	want := map[string]any{
		"seen": 1.0, "sampled": 1.0, "shed": 0.0, "decided": 0.0, "agreed": 0.0, "masked": 0.0, "regret": map[string]any{"sum": 0.0, "mean": 0.0, "max": 0.0},
		"load_spread": map[string]any{"active": 0.0, "shadow": 0.0}, "fuel": 0.0, "us": 0.0, "faults": map[string]any{},
	}
	if diff := cmp.Diff(want, p.Shadow.Report); diff != "" {
		t.Error(diff)
	}
	if p.Revisions[2].State != "shadow" {
		t.Errorf("got %+v", p.Revisions)
	}
	b.rollout(t, "shadow", `{"revision":0}`)
	if p := b.rolled(t); p.Shadow != nil {
		t.Errorf("got %+v", p.Shadow)
	}
	b.rollout(t, "shadow", `{"revision":3}`)
	if got := b.rollout(t, "promote", "{}"); got.Active != 3 || b.rolled(t).Shadow != nil {
		t.Errorf("got %+v", got)
	}
}

func TestARolloutNamesWhatIsWrong(t *testing.T) {
	b := three(t)
	b.call(t, "PUT", "/v1/policies/idle", leastLoad).into(t, http.StatusCreated, nil)
	for _, c := range []struct {
		path, body string
		status     int
		part       string
	}{
		{"default/canary", ``, 400, "JSON object"},
		{"default/canary", `{}`, 400, "revision"},
		{"default/canary", `{"revision":null,"percent":1}`, 400, "revision"},
		{"default/canary", `{"revision":-1,"percent":1}`, 400, "revision: -1 is not allowed"},
		{"default/canary", `{"revision":2}`, 400, "percent"},
		{"default/canary", `{"revision":2,"percent":101}`, 400, "0 to 100"},
		{"default/canary", `{"revision":2,"percent":-0.1}`, 400, "0 to 100"},
		{"default/canary", `{"revision":2,"percent":"5"}`, 400, `percent: \"5\" is a text; allowed: a number`},
		{"default/canary", `{"revision":2,"percent":5,"by":"user"}`, 400, "request, session"},
		{"default/canary", `{"revision":2,"percent":5,"header":{"value":"x"}}`, 400, "header.name"},
		{"default/canary", `{"revision":2,"percent":5,"header":{"name":"a b","value":"x"}}`, 400, `"item":"header.name"`},
		{"default/canary", `{"revision":2,"percent":5,"header":{"name":"a","value":"` + strings.Repeat("x", 300) + `"}}`, 400, `"item":"header.value"`},
		{"default/canary", `{"revision":2,"header":{"name":"a"}}`, 400, `"item":"header.value"`},
		{"default/canary", `{"revision":2,"percent":5,"header":{"name":"a","value":""}}`, 400, "1 to 256 printable characters"},
		{"default/canary", `{"revision":2,"percent":5,"header":{"name":"a","value":"a\nb"}}`, 400, `"item":"header.value"`},
		{"default/canary", `{"revision":2,"percent":5,"header":{"nam":"a"}}`, 400, "header.nam"},
		{"default/canary", `{"revision":0,"percent":5}`, 400, `"item":"percent"`},
		{"default/canary", `{"revision":0,"by":"session"}`, 400, `"item":"by"`},
		{"default/canary", `{"revision":0,"header":{"name":"a","value":"b"}}`, 400, `"item":"header"`},
		{"default/canary", `{"revision":"1","percent":5}`, 400, `revision: \"1\" is a text; allowed: a whole number in range`},
		{"default/activate", `{"revision":"1"}`, 400, `revision: \"1\" is a text; allowed: a whole number in range`},
		{"default/activate", `{"revision":1.5}`, 400, `1.5`},
		{"default/activate", `{"revision":true}`, 400, `revision: true is a truth value`},
		{"default/activate", `{"revision":-1}`, 400, `revision: -1 is not allowed; allowed: the number`},
		{"default/activate", `{"revision":0}`, 400, `revision: 0 is not allowed; allowed: the number`},
		{"default/activate", `{}`, 400, `revision: is missing`},
		{"default/activate", `{"revision":null}`, 400, `revision: is missing`},
		{"default/rollback", `{"to":-1}`, 400, `to: -1 is not allowed`},
		{"default/canary", `{"revision":1,"percent":5}`, 400, "not the active one"},
		{"default/canary", `{"revision":9,"percent":5}`, 404, "revision 9"},
		{"default/canary", `{"revision":2,"percent":5,"sample":1}`, 400, "sample"},
		{"none/canary", `{"revision":2,"percent":5}`, 404, "none"},
		{"none/canary", `{"revision":0}`, 404, "none"},
		{"idle/canary", `{"revision":1,"percent":5}`, 409, "no_active"},
		{"default/shadow", `{"sample":1}`, 400, "revision"},
		{"default/shadow", `{"revision":2,"sample":0}`, 400, "above 0 to 1"},
		{"default/shadow", `{"revision":2,"sample":1.5}`, 400, "above 0 to 1"},
		{"default/shadow", `{"revision":0,"sample":1}`, 400, "sample"},
		{"default/shadow", `{"revision":1}`, 400, "not the active one"},
		{"default/shadow", `{"revision":2,"percent":5}`, 400, "percent"},
		{"none/shadow", `{"revision":1}`, 404, "none"},
		{"idle/shadow", `{"revision":1}`, 409, "no_active"},
		{"default/promote", `{"revision":2}`, 400, "revision"},
		{"default/promote", ``, 409, "no_rollout"},
		{"none/promote", ``, 404, "none"},
	} {
		a := b.call(t, "POST", "/v1/policies/"+c.path, c.body)
		if a.failure(t); a.status != c.status || !strings.Contains(a.body, c.part) {
			t.Errorf("%s %s: got %d %s", c.path, c.body, a.status, a.body)
		}
	}
	if p := b.rolled(t); p.Canary != nil || p.Shadow != nil || p.Active != 1 {
		t.Errorf("something changed: %+v", p)
	}
}

func TestAPolicyShowsTheLimitsOfItsModules(t *testing.T) {
	b := three(t, func(_ *admin.Config, p *admin.Parts) {
		p.Limits = func() host.Limits {
			return host.Limits{CallDeadline: 1e7, PoolWait: 2e7, MemoryLimit: 1 << 20, FuelCap: 5e6}
		}
	})
	p := b.rolled(t)
	if diff := cmp.Diff(map[string]any{"call_deadline": "10ms", "pool_wait": "20ms", "memory_limit": float64(1 << 20), "fuel_cap": 5e6}, p.Limits.Runtime); diff != "" {
		t.Error(diff)
	}
	if len(p.Limits.Modules) != 1 {
		t.Fatalf("got %+v", p.Limits)
	}
	m := p.Limits.Modules[0]
	for _, name := range []string{"memory_pages", "fuel_base", "fuel_per_row", "max_rows"} {
		if v, ok := m[name].(float64); !ok || v < 1 {
			t.Errorf("%s is %v", name, m[name])
		}
	}
	if digest, _ := m["digest"].(string); !strings.HasPrefix(digest, "sha256:") || m["manifest_name"] != "high" {
		t.Errorf("got %+v", m)
	}
	if p := newBench(t).rolled(t); len(p.Limits.Modules) != 0 || p.Limits.Runtime != nil {
		t.Errorf("without modules: %+v", p.Limits)
	}
}

func TestACanaryTakesOnlyHeadersThatPoliciesSee(t *testing.T) {
	var listed atomic.Pointer[[]string]
	listed.Store(&[]string{"x-tier"})
	b := three(t, func(_ *admin.Config, p *admin.Parts) {
		p.Limits = func() host.Limits { return host.Limits{Headers: *listed.Load()} }
	})
	b.rollout(t, "canary", `{"revision":2,"header":{"name":"X-Tier","value":"gold"}}`)
	refused := func(name string) {
		t.Helper()
		b.call(t, "POST", "/v1/policies/default/canary", fmt.Sprintf(`{"revision":2,"header":{"name":%q,"value":"v"}}`, name)).
			refused(t, http.StatusBadRequest, "invalid", "plugins.headers")
	}
	refused("authorization")
	refused("x-other")
	listed.Store(&[]string{})
	refused("x-tier")
	b.rollout(t, "canary", `{"revision":2,"percent":5}`)
}
