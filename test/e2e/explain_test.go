//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	. "github.com/routerd/routerd/host/wasmtest"
)

// explained is what the tests read of a decision, or of what another revision
// would have made of it.
type explained struct {
	ID     string `json:"id"`
	Policy struct {
		Name     string `json:"name"`
		Revision int    `json:"revision"`
	} `json:"policy"`
	Rows []struct {
		Worker      uint64             `json:"worker"`
		Columns     map[string]float64 `json:"columns"`
		Mask        int                `json:"mask"`
		StageScores []float64          `json:"stage_scores"`
		Total       float64            `json:"total"`
	} `json:"rows"`
	Pick struct {
		Name string `json:"name"`
		By   string `json:"by"`
	} `json:"pick"`
	Same *bool `json:"same"`
}

// A live decision is explained, and what other revisions would have made of it:
// the same revision makes the same bits of it again.
func TestALiveDecisionIsExplainedByOtherRevisions(t *testing.T) {
	t.Parallel() // it measures no times
	r := startRouter(t, three(t)+"plugins:\n"+unhurried)
	active := r.revise("lowest", byID("lowest", false))
	r.activate(active)
	other := r.revise("highest", byID("highest", true))
	_, head, _ := r.complete(2)
	id := head.Get("x-routerd-decision")
	var recorded, again, instead explained
	r.must("GET", "/v1/decisions/"+id, nil, &recorded)
	r.must("GET", fmt.Sprintf("/v1/decisions/%s?policy=default@%d", id, active), nil, &again)
	r.must("GET", fmt.Sprintf("/v1/decisions/%s?policy=default@%d", id, other), nil, &instead)
	if len(recorded.Rows) != 3 || recorded.Pick.Name != lowest || recorded.Pick.By != "policy" {
		t.Errorf("recorded: %+v", recorded)
	}
	if diff := cmp.Diff(recorded, again, cmpopts.IgnoreFields(explained{}, "Same")); diff != "" || again.Same == nil || !*again.Same {
		t.Errorf("the same revision again (-recorded +replayed)\n%s", diff)
	}
	if instead.Pick.Name != highest || instead.Policy.Revision != other || instead.Same == nil || *instead.Same || instead.Rows[2].Total != 3 {
		t.Errorf("another revision: %+v", instead)
	}

	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"w1", "w2", "w3", "worker.id", fmt.Sprintf("default@%d", active), "picked w1"}},
		{[]string{"--policy", fmt.Sprintf("default@%d", other)}, []string{"picked w1", fmt.Sprintf("default@%d would pick w3", other)}},
		{[]string{"--policy", fmt.Sprintf("default@%d", active), "--output", "json"}, []string{`"same": true`}},
	} {
		code, out, said := r.cli(append([]string{"decisions", id}, c.args...)...)
		for _, want := range c.want {
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("%v: exit code %d, want %q in\n%s%s", c.args, code, want, out, said)
			}
		}
	}

	// A column that nobody read when the decision was made.
	late := r.revise("late", Guest{Columns: []string{"label.rack"}}.Bytes())
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		fmt.Sprintf("%s?policy=default@%d", id, late): {http.StatusConflict, "label.rack"},
		id + "?policy=default@99":                     {http.StatusNotFound, "99"},
		id + "?policy=nobody@1":                       {http.StatusNotFound, "nobody"},
		id + "?policy=default@x":                      {http.StatusBadRequest, "policy"},
		"gone?policy=default@1":                       {http.StatusNotFound, "decision"},
	} {
		status, answer := r.raw("GET", "/v1/decisions/"+path, nil)
		if e := refusedWith(t, path, status, answer); status != want.status || !strings.Contains(fmt.Sprint(e), want.says) {
			t.Errorf("%s: got %d %+v, want %d and %q", path, status, e, want.status, want.says)
		}
	}
	code, _, said := r.cli("decisions", id, "--policy", fmt.Sprintf("default@%d", late))
	if code != 1 || !strings.Contains(said, "label.rack") || strings.Count(strings.TrimSpace(said), "\n") != 0 {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// A specification is tried on live decisions: what would change is told, and
// nothing is kept.
func TestASpecificationIsTriedOnLiveDecisions(t *testing.T) {
	t.Parallel() // it measures no times
	const requests = 20
	r := startRouter(t, three(t)+"plugins:\n"+unhurried)
	r.activate(r.revise("lowest", byID("lowest", false)))
	r.must("PUT", "/v1/modules/highest", byID("highest", true), nil)
	r.must("PUT", "/v1/modules/nearest", byDistance(1), nil)
	for range requests {
		r.chooses(lowest)
	}
	before := r.policy("default")
	for _, c := range []struct {
		module            string
		agreed, disagreed int
		regret            float64
	}{{"nearest", requests, 0, 0}, {"highest", 0, requests, 2 * requests}} {
		var got struct {
			DryRun bool `json:"dry_run"`
			Trial  struct {
				Base, Decided, Agreed, Disagreed int
				Regret                           struct{ Sum float64 }
				Changed                          []struct{ Decision string }
			}
		}
		r.must("PUT", "/v1/policies/default?dry_run=1", scorer("module:"+c.module), &got)
		if tr := got.Trial; !got.DryRun || tr.Base != before.Active || tr.Decided != requests || tr.Agreed != c.agreed || tr.Disagreed != c.disagreed || tr.Regret.Sum != c.regret {
			t.Errorf("%s: got %+v, want %d agreed and %d not, regret %v", c.module, got, c.agreed, c.disagreed, c.regret)
		}
		for _, changed := range got.Trial.Changed {
			var d explained
			if r.must("GET", "/v1/decisions/"+changed.Decision, nil, &d); d.Pick.Name != lowest {
				t.Errorf("%s: the changed decision %s picked %q", c.module, changed.Decision, d.Pick.Name)
			}
		}
		code, out, said := r.cli("policy", "apply", "default", "--use", "module:"+c.module, "--dry-run")
		for _, want := range []string{"nothing is kept", fmt.Sprintf("tried on %d recorded decisions", requests)} {
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("%s: exit code %d, want %q in\n%s%s", c.module, code, want, out, said)
			}
		}
	}
	if diff := cmp.Diff(before, r.policy("default")); diff != "" {
		t.Errorf("a dry run changed the policy (-before +after)\n%s", diff)
	}
	r.chooses(lowest)
}
