package core_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
)

func trapping() *stage {
	return &stage{score: func(context.Context, *policy.Table, []float64) error {
		return &policy.Fault{Stage: "module:m", Code: "E_TRAP", Reason: "trap", Detail: "unreachable", Counts: true}
	}}
}

func TestW5_FaultsAreAnsweredByTheFallbackAndTripOnce(t *testing.T) {
	var logged bytes.Buffer
	w := newWorld(t, use("module:m"), stages{trapping()})
	c := core.New(core.DefaultConfig(), core.SelectionHost{Telemetry: w.heard}, w.policies, w.cache, slog.New(slog.NewTextHandler(&logged, nil)))
	w.SelectionCore = c
	w.join(t, workers("m1", 2)...)
	var faults []string
	for range 5 {
		sel, err := w.Select(t.Context(), bookRequest("", prompt('A', 32)))
		if err != nil || sel.By != policy.ByFallback {
			t.Fatalf("got %+v, %v; want an answer by the fallback", sel, err)
		}
		rec, _ := w.Decisions().Get(sel.DecisionID)
		if rec.Fault == nil {
			faults = append(faults, "none")
		} else {
			detail := map[bool]string{true: rec.Fault.Detail}[rec.Fault.Reason != core.ReasonTripped]
			faults = append(faults, rec.Fault.Reason+" "+detail)
		}
	}
	want := []string{"trap unreachable", "trap unreachable", "trap unreachable", "tripped ", "tripped "}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Errorf("faults in the records (-want +got):\n%s", diff)
	}
	if n := strings.Count(logged.String(), "policy tripped"); n != 1 {
		t.Errorf("tripping was logged %d times; want once:\n%s", n, logged.String())
	}
	if e := w.heard.decided[0]; e.FaultCode != "E_TRAP" || e.FaultReason != "trap" || e.By != policy.ByFallback {
		t.Errorf("telemetry heard %+v", e)
	}
	w.policies.handle.Active().Retry()
	if _, err := w.Select(t.Context(), bookRequest("", nil)); err != nil {
		t.Fatal(err)
	}
	if e := w.heard.decided[5]; e.FaultReason != "trap" {
		t.Errorf("after a retry telemetry heard %+v; want the policy to be asked again", e)
	}
}

func TestPolicyThatAsksToFailBooksNothing(t *testing.T) {
	spec := use("module:m")
	spec.Scorers[0].OnError = "fail"
	w := newWorld(t, spec, stages{trapping()})
	w.join(t, workers("m1", 2)...)
	for range 2 { // the id is free again
		_, err := w.Select(t.Context(), bookRequest("r", prompt('A', 32)))
		if e := asError(err); e == nil || e.Code != core.CodePolicyFailed || strings.Contains(e.Message, "http") {
			t.Errorf("got %v; want policy_failed", err)
		}
	}
	if w.active() != 0 || w.Reservations() != 0 {
		t.Errorf("%d bookings, %d reservations; want none", w.active(), w.Reservations())
	}
	if e := w.heard.decided[0]; e.Code != core.CodePolicyFailed || e.FaultReason != "trap" {
		t.Errorf("telemetry heard %+v", e)
	}
}

func TestSwapDuringSelectionsUsesOneOfTheTwo(t *testing.T) {
	prefer := func(row int) *policy.Revision {
		s := &stage{score: func(_ context.Context, _ *policy.Table, scores []float64) error {
			clear(scores)
			scores[row] = 1
			return nil
		}}
		return revisionOf(t, "p", row+2, use("module:m"), stages{s})
	}
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, workers("m1", 2)...)
	low := w.Partitions()[0].Ranks[0].Name
	for i := range 200 {
		rev := prefer(i % 2)
		if err := w.policies.handle.Publish(rev); err != nil {
			t.Fatal(err)
		}
		sel, err := w.Select(t.Context(), bookRequest("", nil))
		if err != nil {
			t.Fatal(err)
		}
		if (sel.Name == low) != (i%2 == 0) || sel.Revision != rev.Number() {
			t.Fatalf("after revision %d was published %s was picked by revision %d", rev.Number(), sel.Name, sel.Revision)
		}
		rev.Retire()
	}
}
