package admin_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host"
)

func TestTheReasonOfAChangeIsInTheHistory(t *testing.T) {
	b := three(t)
	b.call(t, "PUT", "/v1/policies/default?reason=for%20ticket%207", `{"scorers":[{"use":"builtin:round-robin"}]}`).into(t, http.StatusCreated, nil)
	for _, c := range [][2]string{
		{"shadow", `{"revision":4,"reason":"a look"}`},
		{"shadow", `{"revision":0,"reason":"seen enough"}`},
		{"canary", `{"revision":2,"percent":5,"reason":"careful"}`},
		{"promote", `{"reason":"looks good ✓"}`},
		{"rollback", `{"reason":"it was not"}`},
		{"activate", `{"revision":3,"reason":"` + strings.Repeat("é", 256) + `"}`},
		{"activate", `{"revision":2}`},
	} {
		b.rollout(t, c[0], c[1])
	}
	var got []string
	for _, c := range b.rolled(t).History[3:] {
		got = append(got, c.What+": "+c.Why)
	}
	want := []string{
		"put: for ticket 7", "shadow: sample 1; a look", "shadow_end: seen enough", "canary: 5 % by request; careful",
		"promote: looks good ✓", "rollback: it was not", "activate: " + strings.Repeat("é", 256), "activate: ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAReasonThatIsTooLongOrNotPrintableIsRefused(t *testing.T) {
	b := three(t)
	before := len(b.rolled(t).History)
	for _, bad := range []string{strings.Repeat("x", 257), "two\nlines", "a\ttab", "\x1b[31m", "back\u202ewards", "nul\x00"} {
		text, err := json.Marshal(bad)
		if err != nil {
			t.Fatal(err)
		}
		for verb, fields := range map[string]string{
			"activate": `"revision":2,`, "shadow": `"revision":2,`, "canary": `"revision":2,"percent":5,`, "promote": "", "rollback": "",
		} {
			a := b.call(t, "POST", "/v1/policies/default/"+verb, "{"+fields+`"reason":`+string(text)+"}")
			if f := a.failure(t); a.status != http.StatusBadRequest || f.Details.Item != "reason" || !strings.Contains(f.Details.Allowed, "256 printable") || len(a.body) > 1000 {
				t.Errorf("%s %q: got %d %s", verb, bad, a.status, a.body)
			}
		}
		for _, method := range []string{"PUT", "DELETE"} {
			var body any
			if method == "PUT" {
				body = leastLoad
			}
			b.call(t, method, "/v1/policies/default?reason="+url.QueryEscape(bad), body).refused(t, http.StatusBadRequest, "invalid", "query parameter reason")
		}
	}
	b.call(t, "PUT", "/v1/policies/default?reason=%ff", leastLoad).refused(t, http.StatusBadRequest, "invalid", "query parameter reason")
	b.call(t, "PUT", "/v1/policies/default?dry_run=1&reason=x", leastLoad).refused(t, http.StatusBadRequest, "invalid", "dry_run")
	b.call(t, "POST", "/v1/policies/default/promote", `{"reason":7}`).refused(t, http.StatusBadRequest, "invalid", "reason")
	if n := len(b.rolled(t).History); n != before {
		t.Errorf("%d changes came into the history", n-before)
	}
}

func TestAPolicyIsRemoved(t *testing.T) {
	b := three(t)
	b.call(t, "PUT", "/v1/policies/other", `{"scorers":[{"use":"module:high"}]}`).into(t, http.StatusCreated, nil)
	b.call(t, "POST", "/v1/policies/other/activate", `{"revision":1}`).into(t, http.StatusOK, nil)
	b.call(t, "DELETE", "/v1/policies/other?reason=gone%20for%20good", nil).into(t, http.StatusNoContent, nil)
	b.call(t, "GET", "/v1/policies/other", nil).refused(t, http.StatusNotFound, "not_found", "other")
	b.call(t, "DELETE", "/v1/policies/other", nil).refused(t, http.StatusNotFound, "not_found", "other")
	b.call(t, "DELETE", "/v1/policies/default", nil).refused(t, http.StatusConflict, "conflict", "always exists")
	b.call(t, "DELETE", "/v1/policies/default?force=1", nil).refused(t, http.StatusBadRequest, "invalid", "reason")
	if p := b.rolled(t); p.Active != 1 {
		t.Errorf("got %+v", p)
	}
	if log := b.log.String(); !strings.Contains(log, `what="DELETE /v1/policies/{name}"`) {
		t.Error("a removal leaves no audit line")
	}
}

func TestAPolicyThatTheConfigurationNamesIsNotRemoved(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"ruled", "modelled", "usual", "free"} {
		b.call(t, "PUT", "/v1/policies/"+name, leastLoad).into(t, http.StatusCreated, nil)
		b.call(t, "POST", "/v1/policies/"+name+"/activate", `{"revision":1}`).into(t, http.StatusOK, nil)
	}
	p, err := b.source.PrepareConfig(t.Context(), host.PolicyConfig{
		Rules: []host.Rule{{Model: "m", Policy: "ruled"}}, Models: map[string]string{"n": "modelled"}, Default: "usual",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(); err != nil {
		t.Fatal(err)
	}
	for name, where := range map[string]string{"ruled": "routing.rules[0]", "modelled": "models.n", "usual": "routing.default"} {
		a := b.call(t, "DELETE", "/v1/policies/"+name, nil)
		a.refused(t, http.StatusConflict, "conflict", where)
		if f := a.failure(t); f.Details.Step != "in_use" {
			t.Errorf("%s: got %+v", name, f)
		}
	}
	b.call(t, "DELETE", "/v1/policies/free", nil).into(t, http.StatusNoContent, nil)
}

// run runs the policies until the test ends, so that trips are written down.
func (b *bench) run(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.source.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// waitTrip waits until the guard's last word in the history is what.
func (b *bench) waitTrip(t testing.TB, what string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); ; {
		h := b.rolled(t).History
		if last := h[len(h)-1]; last.Who == "guard" && last.What == what {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("no %s of the guard in %+v", what, h)
		}
	}
}

type warnedAnswer struct {
	Active   int
	Warnings []struct{ Code, Message string }
}

func TestOneWhoActivatesWhatHasTrippedIsWarned(t *testing.T) {
	b := three(t)
	b.run(t)
	b.call(t, "PUT", "/v1/modules/traps", trapsFor1()).into(t, http.StatusCreated, nil)
	b.call(t, "PUT", "/v1/policies/default", `{"scorers":[{"use":"module:traps"}]}`).into(t, http.StatusCreated, nil)
	change := func(verb, body string, active int, warned bool) {
		t.Helper()
		var got warnedAnswer
		a := b.call(t, "POST", "/v1/policies/default/"+verb, body)
		a.into(t, http.StatusOK, &got)
		ok := len(got.Warnings) == 0 && !strings.Contains(a.body, "warnings")
		if warned {
			ok = len(got.Warnings) == 1 && got.Warnings[0].Code == "tripped_before" &&
				strings.Contains(got.Warnings[0].Message, "revision 4 tripped at 2") && strings.Contains(got.Warnings[0].Message, "E_TRAP")
		}
		if !ok || got.Active != active {
			t.Errorf("%s %s: want active %d, warned %v; got %s", verb, body, active, warned, a.body)
		}
	}
	trap := func() {
		for range 5 {
			b.sel(t, "", 16)
		}
	}
	change("activate", `{"revision":2}`, 2, false)
	change("activate", `{"revision":4}`, 4, false)
	trap()
	b.waitTrip(t, "trip")
	change("activate", `{"revision":4}`, 4, false) // whoever retries knows
	change("rollback", ``, 2, false)
	change("rollback", ``, 4, true) // the rollback of a rollback
	change("rollback", ``, 2, false)
	change("rollback", `{"to":4}`, 4, true)
	change("activate", `{"revision":2}`, 2, false)
	change("activate", `{"revision":4}`, 4, true)
	change("activate", `{"revision":2}`, 2, false)
	change("shadow", `{"revision":4}`, 2, false)
	change("canary", `{"revision":3,"percent":100}`, 2, false)
	change("canary", `{"revision":4,"percent":100}`, 2, true)
	trap()
	b.waitTrip(t, "rollback")
	change("promote", ``, 4, true) // the shadow's
}
