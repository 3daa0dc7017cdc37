//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rolloutStep is one change of the default policy and what it is afterwards.
type rolloutStep struct {
	verb, body string
	what       string // in the history
	after      rolledOut
}

// rolloutScript is a round of changes: after the last one all is as it was
// before the first one, where revision 2 was active and before it revision 3.
func rolloutScript() []rolloutStep {
	return []rolloutStep{
		{"canary", `{"revision":3,"percent":10}`, "canary", rolledOut{2, 3, "3 at 10 % by request", ""}},
		{"canary", `{"revision":3,"percent":50,"by":"session"}`, "canary", rolledOut{2, 3, "3 at 50 % by session", ""}},
		{"shadow", `{"revision":4,"sample":0.5}`, "shadow", rolledOut{2, 3, "3 at 50 % by session", "4 at 0.5"}},
		{"promote", ``, "promote", rolledOut{3, 2, "", ""}},
		{"rollback", ``, "rollback", rolledOut{2, 3, "", ""}},
		{"shadow", `{"revision":5}`, "shadow", rolledOut{2, 3, "", "5 at 1"}},
		{"promote", ``, "promote", rolledOut{5, 2, "", ""}},
		{"activate", `{"revision":3}`, "activate", rolledOut{3, 5, "", ""}},
		{"canary", `{"revision":4,"percent":5}`, "canary", rolledOut{3, 5, "4 at 5 % by request", ""}},
		{"rollback", ``, "rollback", rolledOut{3, 5, "", ""}},
		{"canary", `{"revision":2,"percent":1.5}`, "canary", rolledOut{3, 5, "2 at 1.5 % by request", ""}},
		{"canary", `{"revision":0}`, "canary_end", rolledOut{3, 5, "", ""}},
		{"shadow", `{"revision":2}`, "shadow", rolledOut{3, 5, "", "2 at 1"}},
		{"shadow", `{"revision":0}`, "shadow_end", rolledOut{3, 5, "", ""}},
		{"activate", `{"revision":2}`, "activate", rolledOut{2, 3, "", ""}},
	}
}

// A kill at any moment of a script of changes leaves the policy as it was after
// the last answered change or after the one under way, whole, with its history.
func TestKillAmidRollouts(t *testing.T) {
	t.Parallel() // it measures no times
	yaml := three(t)
	r := startRouter(t, yaml)
	for i, name := range []string{"a1", "b2", "c3", "d4"} {
		if got := r.revise(name, byID(name, i%2 == 0)); got != i+2 {
			t.Fatalf("revision %d, want %d", got, i+2)
		}
	}
	r.activate(3)
	r.activate(2)
	script := rolloutScript()
	done := len(script) // a round is behind it, so to speak
	at := func(n int) rolloutStep { return script[n%len(script)] }
	for range rolloutCrashes {
		before := done
		done = killAmid(r, done, func(i int) bool {
			return change(t.Context(), r, http.MethodPost, "/v1/policies/default/"+at(i).verb, []byte(at(i).body))
		})
		r = again(t, r, yaml)
		p := r.policy("default")
		got := p.rolledOut()
		answered, pending := at(done-1), at(done)
		switch {
		case got == answered.after && p.History[len(p.History)-1].What == answered.what:
		case got == pending.after && p.History[len(p.History)-1].What == pending.what:
			done++
		default:
			t.Fatalf("after %q was answered and %q was under way: got %+v\n(-answered +got)\n%s(-under way +got)\n%s", answered.verb+answered.body,
				pending.verb+pending.body, p.changes(3), cmp.Diff(answered.after, got), cmp.Diff(pending.after, got))
		}
		// Of the changes since the last crash none is missing and none is there twice.
		var want []string
		for i := max(before, done-50); i < done; i++ {
			want = append(want, "api "+at(i).what)
		}
		if diff := cmp.Diff(want, p.changes(len(want))); diff != "" {
			t.Fatalf("history (-want +got)\n%s", diff)
		}
		if status, _, answer := r.complete(2); status != http.StatusOK {
			t.Errorf("status %d after the crash: %s", status, answer)
		}
	}
	t.Logf("%d changes, %d crashes", done-len(script), rolloutCrashes)
	if done-len(script) < rolloutCrashes {
		t.Error("hardly a change was made")
	}
	if got := fmt.Sprint(names(t, r, "/v1/modules", "modules", "name")); got != "[a1 b2 c3 d4]" {
		t.Errorf("modules %s", got)
	}
}
