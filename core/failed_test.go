package core_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
)

// failing is a world whose policy ends every request, and its log.
func failing(t *testing.T, spec policy.Spec, src policy.StageSource) (*world, *bytes.Buffer) {
	t.Helper()
	var logged bytes.Buffer
	w := newWorld(t, spec, src)
	w.SelectionCore = core.New(core.DefaultConfig(), core.SelectionHost{Telemetry: w.heard}, w.policies, w.cache, slog.New(slog.NewTextHandler(&logged, nil)))
	w.join(t, workers("m1", 2)...)
	return w, &logged
}

// badFilter faults in every call.
type badFilter struct{ stage }

func (*badFilter) Filter(context.Context, *policy.Table, []byte, *policy.StageReport) (policy.Verdict, error) {
	return 0, &policy.Fault{Stage: "module:bad", Code: "E_TRAP", Reason: "trap"}
}

func failsOnError() policy.Spec {
	spec := use("module:m")
	spec.Scorers[0].OnError = "fail"
	return spec
}

func failsOnEmpty() policy.Spec {
	spec := withFilters(use("builtin:kv-aware"), "module:f")
	spec.Filters[0].OnEmpty = "fail"
	return spec
}

func TestADecisionThatFailsTheRequestLeavesARecord(t *testing.T) {
	for name, c := range map[string]struct {
		spec  policy.Spec
		src   policy.StageSource
		code  core.Code
		fault core.RecordedFault
		rows  []string // mask and who dropped it
	}{
		"on_error": {
			failsOnError(),
			stages{trapping()},
			core.CodePolicyFailed,
			core.RecordedFault{Stage: "module:m", Code: "E_TRAP", Reason: "trap", Detail: "unreachable"},
			[]string{"1 ", "1 "},
		},
		"on_empty": {
			failsOnEmpty(),
			kit{"module:f": dropping("w1", "w2")},
			core.CodeNoCandidates,
			core.RecordedFault{Stage: "module:f", Reason: core.ReasonEmptied, Detail: `filters[0] "module:f": every candidate was dropped by a filter of the policy`},
			[]string{"0 module:f", "0 module:f"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := failing(t, c.spec, c.src)
			req := bookRequest("s", nil)
			req.RequestID = "req"
			_, err := w.Select(t.Context(), req)
			e := asError(err)
			if e == nil || e.Code != c.code || !strings.HasPrefix(e.DecisionID, "req.") {
				t.Fatalf("got %+v; want %s with the decision's id", e, c.code)
			}
			rec, ok := w.Decisions().Get(e.DecisionID)
			if !ok || !w.heard.decided[0].Recorded || w.heard.decided[0].By != "" {
				t.Fatalf("no record of it; telemetry heard %+v", w.heard.decided[0])
			}
			if diff := cmp.Diff(&c.fault, rec.Fault); diff != "" {
				t.Errorf("fault (-want +got):\n%s", diff)
			}
			var rows []string
			for _, r := range rec.Rows {
				rows = append(rows, fmt.Sprint(r.Mask, " ", r.By))
			}
			if diff := cmp.Diff(c.rows, rows); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			text, err := json.Marshal(rec)
			if err != nil || !strings.Contains(string(text), `"pick":null`) || rec.Pick.By != "" || rec.Policy.Name == "" {
				t.Errorf("got %s, %v; want no pick", text, err)
			}
			again, ok := w.Decisions().Recording(e.DecisionID)
			if !ok || len(again.Frame.Rows()) != 2 {
				t.Errorf("the decision cannot be made again: %+v", again)
			}
		})
	}
}

// The fault in the record is the one that ended the request, whatever was
// skipped before.
func TestTheRecordOfAFailureShowsTheFaultThatEndedIt(t *testing.T) {
	spec := withFilters(use("builtin:kv-aware"), "module:bad", "module:f")
	spec.Filters[0].OnError, spec.Filters[1].OnEmpty = "skip", "fail"
	w, _ := failing(t, spec, kit{"module:bad": &badFilter{}, "module:f": dropping("w1", "w2")})
	_, err := w.Select(t.Context(), bookRequest("", nil))
	e := asError(err)
	if e == nil {
		t.Fatal("the request did not fail")
	}
	if rec, _ := w.Decisions().Get(e.DecisionID); rec.Fault == nil || rec.Fault.Reason != core.ReasonEmptied || rec.Fault.Stage != "module:f" {
		t.Errorf("got %+v", rec.Fault)
	}
}

func TestAFailureIsToldToTheOperatorAtALowRate(t *testing.T) {
	w, logged := failing(t, failsOnEmpty(), kit{"module:f": dropping("w1", "w2")})
	for range 200 {
		if _, err := w.Select(t.Context(), bookRequest("", nil)); err == nil {
			t.Fatal("want an error")
		}
	}
	var lines []string
	for line := range strings.Lines(logged.String()) {
		if strings.Contains(line, "without a pick") {
			lines = append(lines, line)
		}
	}
	if len(lines) < 1 || len(lines) > 20 {
		t.Fatalf("200 failures are %d lines", len(lines))
	}
	for _, want := range []string{"level=WARN", "policy=", "revision=", "plugin=module:f", "reason=emptied", "decision=d."} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%q does not have %s", lines[0], want)
		}
	}
}
