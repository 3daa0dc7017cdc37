package core_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// canary lets revision 2, of another spec, decide for a share of the requests.
func (w *world) canary(t *testing.T, spec policy.Spec, src policy.StageSource, c policy.Canary) *policy.Revision {
	t.Helper()
	c.Revision = revisionOf(t, "default", 2, spec, src)
	if err := w.policies.handle.SetCanary(&c); err != nil {
		t.Fatal(err)
	}
	return c.Revision
}

func TestACanaryDecidesForItsShareAndTheRecordSaysSo(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, workers("m1", 3)...)
	w.canary(t, use("builtin:least-load"), nil, policy.Canary{Percent: 25})
	byCanary := 0
	for range 800 {
		sel, err := w.Select(t.Context(), &core.Request{Partition: model("m1")})
		if err != nil {
			t.Fatal(err)
		}
		rec, _ := w.Decisions().Get(sel.DecisionID)
		if rec.Policy.Canary != (sel.Revision == 2) || rec.Policy.Revision != sel.Revision {
			t.Fatalf("revision %d decided, the record says %+v", sel.Revision, rec.Policy)
		}
		if e := w.heard.decided[len(w.heard.decided)-1]; e.Canary != rec.Policy.Canary || e.Revision != sel.Revision {
			t.Fatalf("telemetry heard %+v", e)
		}
		if rec.Policy.Canary {
			byCanary++
		}
	}
	if byCanary < 150 || byCanary > 250 {
		t.Errorf("the canary decided for %d of 800; want 25 %%", byCanary)
	}
}

func TestARequestStaysOnItsSideOfACanaryOverItsAttempts(t *testing.T) {
	for _, bySession := range []bool{false, true} {
		w := newWorld(t, use("builtin:kv-aware"), nil)
		w.join(t, workers("m1", 4)...)
		w.canary(t, use("builtin:least-load"), nil, policy.Canary{Percent: 50, BySession: bySession})
		sides := map[int]int{}
		for i := range 100 {
			req := &core.Request{Kind: core.Book, Partition: model("m1")}
			if bySession {
				req.Session = fmt.Sprint("s", i)
			}
			first := 0
			for attempt := range 3 {
				sel, err := w.Select(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if attempt == 0 {
					first = sel.Revision
					sides[first]++
				}
				if sel.Revision != first {
					t.Fatalf("attempt %d asked revision %d, the first one %d", attempt, sel.Revision, first)
				}
				req.Exclude, req.Attempt = append(req.Exclude, sel.Worker), req.Attempt+1
			}
		}
		if sides[1] < 25 || sides[2] < 25 {
			t.Errorf("by session %v: the sides got %v", bySession, sides)
		}
	}
}

func TestACanaryByHeaderTakesTheRequestsThatHaveIt(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, workers("m1", 2)...)
	w.canary(t, use("builtin:least-load"), nil, policy.Canary{Header: "x-team", Value: "blue"})
	for want, headers := range map[int]map[string]string{
		1: {"x-team": "red"},
		2: {"x-team": "blue", "x-other": "y"},
	} {
		for range 5 {
			sel, err := w.Select(t.Context(), &core.Request{Partition: model("m1"), Headers: headers})
			if err != nil || sel.Revision != want {
				t.Errorf("%v: got %+v, %v; want revision %d", headers, sel, err, want)
			}
		}
	}
}

func TestPoliciesSeeTheIDsOfAllowedHeaders(t *testing.T) {
	seen := map[string]float64{}
	var partition fleet.PartitionKey
	s := &stage{score: func(_ context.Context, tb *policy.Table, _ []float64) error {
		for _, name := range []string{"x-team", "x-empty", "x-absent"} {
			seen[name] = tb.Header(name)
		}
		partition = tb.Partition
		return nil
	}}
	w := newWorld(t, use("module:m"), stages{s})
	w.join(t, workers("m1", 2)...)
	req := &core.Request{Partition: model("m1"), Headers: map[string]string{"x-team": "blue", "x-empty": ""}}
	if _, err := w.Select(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"x-team": abi.ID("blue"), "x-empty": 0, "x-absent": 0}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if partition != model("m1") {
		t.Errorf("the table is of partition %v", partition)
	}
	// A request without them comes to the same pooled table.
	if _, err := w.Select(t.Context(), &core.Request{Partition: model("m1")}); err != nil {
		t.Fatal(err)
	}
	if seen["x-team"] != 0 {
		t.Error("a header of the request before is still there")
	}
}

// effects counts what is published.
type effects struct{ published *atomic.Int64 }

func (e effects) Publish() { e.published.Add(1) }

func TestEffectsOfDecisionsThatAreMadeAgainAreDropped(t *testing.T) {
	var made, published atomic.Int64
	var w *world
	s := &stage{
		report: func(tb *policy.Table, r *policy.StageReport) {
			if tb.Field(abi.FieldISLTokens) == 32 {
				made.Add(1)
				r.Effects = effects{&published}
				r.Fuel = 100
			}
		},
		score: func(_ context.Context, tb *policy.Table, scores []float64) error {
			if tb.Field(abi.FieldISLTokens) == 32 && made.Load() <= 2 {
				for range tb.Rows { // each rank gets a booking: the decision is void
					if _, err := w.Select(t.Context(), bookRequest("", prompt('B', 64))); err != nil {
						return err
					}
				}
				return nil
			}
			for i, a := range tb.Column(abi.ColLoadActiveRequests) {
				scores[i] = -a
			}
			return nil
		},
	}
	s.columns.AddStd(abi.ColLoadActiveRequests)
	w = newWorld(t, use("module:m"), stages{s})
	w.join(t, workers("m1", 2)...)
	if _, err := w.Select(t.Context(), bookRequest("mine", prompt('A', 32))); err != nil {
		t.Fatal(err)
	}
	e := w.heard.decided[len(w.heard.decided)-1]
	if made.Load() != 3 || e.Conflicts != 2 || published.Load() != 1 {
		t.Errorf("decided %d times over %d conflicts, published %d times; want 3, 2 and 1", made.Load(), e.Conflicts, published.Load())
	}
	if rec, _ := w.Decisions().Get("d.1"); e.Fuel != 300 || rec.Fuel != 100 {
		t.Errorf("telemetry heard of fuel %d, the record holds %d; want 300 over all attempts and 100", e.Fuel, rec.Fuel)
	}
}

func TestEffectsOfAFailureThatEndsTheRequestArePublished(t *testing.T) {
	var published atomic.Int64
	s := trapping()
	s.report = func(_ *policy.Table, r *policy.StageReport) { r.Effects = effects{&published} }
	spec := use("module:m")
	spec.Scorers[0].OnError = "fail"
	w := newWorld(t, spec, stages{s})
	w.join(t, workers("m1", 2)...)
	if _, err := w.Select(t.Context(), bookRequest("r", nil)); asError(err) == nil {
		t.Fatalf("got %v; want an error", err)
	}
	if published.Load() != 1 {
		t.Errorf("published %d times; want once", published.Load())
	}
}

// watcher notes what observers are told.
type watcher struct {
	by    []int
	rows  []int
	loads []int64 // over the world, when it was told
	w     *world
	open  bool // the revision was, at every call
}

func (o *watcher) Observe(by *policy.Revision, t *policy.Table, d *policy.Decision) {
	o.by, o.rows = append(o.by, by.Number()), append(o.rows, t.Len())
	o.loads = append(o.loads, o.w.active())
	select {
	case <-by.Closed():
	default:
		o.open = true
	}
	if d.Row < 0 || d.Row >= t.Len() {
		o.open = false
	}
}

func TestObserversHearOfCommittedDecisionsOfThePolicyAlone(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, workers("m1", 2)...)
	o := &watcher{w: w}
	w.policies.handle.SetObservers(o)
	for _, req := range []*core.Request{
		{Kind: core.Query, Partition: model("m1")},
		bookRequest("r", nil),
		bookRequest("r", nil), // the id is in use
		{Kind: core.Advisory, Partition: model("m1")},
		{Kind: core.Query, Partition: model("m1"), Pin: &core.Pin{Name: "w1"}},
		{Kind: core.Query, Partition: model("m1"), Allow: []string{}},
	} {
		if _, err := w.Select(t.Context(), req); err != nil && asError(err) == nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]int{1, 1}, o.by); diff != "" {
		t.Errorf("observed revisions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int64{0, 1}, o.loads); diff != "" {
		t.Errorf("loads when they were observed: not after the commit (-want +got):\n%s", diff)
	}
}

func TestTheRevisionIsHeldUntilTheDecisionWasObserved(t *testing.T) {
	var rev *policy.Revision
	s := &stage{score: func(_ context.Context, _ *policy.Table, _ []float64) error {
		rev.Retire()
		return nil
	}}
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, workers("m1", 2)...)
	rev = revisionOf(t, "default", 2, use("module:m"), stages{s})
	if err := w.policies.handle.Publish(rev); err != nil {
		t.Fatal(err)
	}
	next := revisionOf(t, "default", 3, use("builtin:kv-aware"), nil)
	s.report = func(*policy.Table, *policy.StageReport) {
		if err := w.policies.handle.Publish(next); err != nil {
			t.Error(err)
		}
	}
	o := &watcher{w: w}
	w.policies.handle.SetObservers(o)
	if _, err := w.Select(t.Context(), bookRequest("r", nil)); err != nil {
		t.Fatal(err)
	}
	if !o.open {
		t.Error("the revision was closed before the observer was told")
	}
	select {
	case <-rev.Closed():
	default:
		t.Error("the revision is still open after the request")
	}
}

func TestACanaryThatStartsToTrapFailsNoRequest(t *testing.T) {
	var broken atomic.Bool
	s := &stage{score: func(context.Context, *policy.Table, []float64) error {
		if !broken.Load() {
			return nil
		}
		return &policy.Fault{Stage: "module:m", Code: "E_TRAP", Reason: "trap", Counts: true}
	}}
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, workers("m1", 3)...)
	rev := w.canary(t, use("module:m"), stages{s}, policy.Canary{Percent: 50})
	faults, after := 0, 0
	for i := range 400 {
		if i == 200 {
			broken.Store(true)
		}
		tripped := rev.State() == policy.Tripped
		rec := w.recordOf(t, &core.Request{Partition: model("m1")})
		switch {
		case rec.Fault != nil && (!rec.Policy.Canary || rec.Pick.By != policy.ByFallback || rec.Fault.Reason != "trap"):
			t.Fatalf("got %+v, fault %+v", rec.Policy, rec.Fault)
		case rec.Fault != nil:
			faults++
		case tripped && rec.Policy.Canary:
			t.Fatal("the canary decides although it has tripped")
		case tripped:
			after++
		}
	}
	if faults != 3 || after < 150 {
		t.Errorf("%d requests were answered by the fallback, %d by the active revision after the trip; want 3, and the rest", faults, after)
	}
}
