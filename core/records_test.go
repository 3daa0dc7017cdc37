package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// kit gives module stages by their names.
type kit map[string]policy.Stage

func (k kit) Stage(_ context.Context, _ abi.Kind, name string, _ json.RawMessage) (policy.Stage, string, error) {
	if k[name] == nil {
		return nil, "", fmt.Errorf("no module %s", name)
	}
	return k[name], "sha256:" + name, nil
}

// sieve is a filter that drops the workers that a test names.
type sieve struct {
	stage
	drop   map[string]bool
	traces []policy.Trace
}

func dropping(names ...string) *sieve {
	s := &sieve{drop: map[string]bool{}}
	for _, n := range names {
		s.drop[n] = true
	}
	return s
}

func (s *sieve) Filter(_ context.Context, t *policy.Table, keep []byte, r *policy.StageReport) (policy.Verdict, error) {
	for row, w := range t.Rows {
		for name := range s.drop {
			if fleet.IDFromName(name) == w.ID {
				keep[row] = 0
			}
		}
	}
	r.Traces = s.traces
	return policy.Answered, nil
}

// whole is a policy that is made of a function.
type whole struct {
	stage
	decide func(t *policy.Table, scores []float64, keep []byte) (policy.Choice, policy.Verdict)
}

func (w *whole) Decide(_ context.Context, t *policy.Table, scores []float64, keep []byte, _ *policy.StageReport) (policy.Choice, policy.Verdict, error) {
	choice, verdict := w.decide(t, scores, keep)
	return choice, verdict, nil
}

func withFilters(spec policy.Spec, uses ...string) policy.Spec {
	for _, u := range uses {
		spec.Filters = append(spec.Filters, policy.FilterSpec{StageSpec: policy.StageSpec{Use: u}})
	}
	return spec
}

// rowsOf are the rows of a record by worker.
func rowsOf(t *testing.T, rec core.DecisionRecord, names ...string) map[string]core.RecordedRow {
	t.Helper()
	out := map[string]core.RecordedRow{}
	for _, r := range rec.Rows {
		for _, n := range names {
			if fleet.IDFromName(n) == r.Worker {
				out[n] = r
			}
		}
	}
	if len(out) != len(names) {
		t.Fatalf("the record has %d rows, of %v it has %d", len(rec.Rows), names, len(out))
	}
	return out
}

func (w *world) recordOf(t *testing.T, req *core.Request) core.DecisionRecord {
	t.Helper()
	sel, err := w.Select(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	rec, ok := w.Decisions().Get(sel.DecisionID)
	if !ok {
		t.Fatal("no record")
	}
	if _, err := json.Marshal(rec); err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestTheRecordNamesWhoDroppedARow(t *testing.T) {
	src := kit{
		"module:f": dropping("w1"), "module:g": dropping("w1", "w2"),
		"module:abstains": &whole{decide: func(*policy.Table, []float64, []byte) (policy.Choice, policy.Verdict) {
			return policy.Choice{}, policy.Abstained
		}},
		"module:whole": &whole{decide: func(tb *policy.Table, scores []float64, keep []byte) (policy.Choice, policy.Verdict) {
			for row, w := range tb.Rows {
				if w.ID == fleet.IDFromName("w3") {
					scores[row] = math.NaN() // dropped: nobody reads it
					keep[row] = 0
					continue
				}
				scores[row] = 2
			}
			return policy.Choice{HostDraws: true}, policy.Answered
		}},
	}
	whole := func(use string) policy.Spec {
		return policy.Spec{Policy: &policy.WholeSpec{StageSpec: policy.StageSpec{Use: use}}}
	}
	for _, c := range []struct {
		name   string
		spec   policy.Spec
		stages string
		by     map[string]string // of the dropped rows
		chose  policy.By
	}{
		{"no filter", use("builtin:kv-aware"), "[{scorer builtin:kv-aware} {picker builtin:best}]", map[string]string{}, policy.ByPolicy},
		{
			"two filters", withFilters(use("builtin:kv-aware"), "module:f", "module:g"),
			"[{filter module:f} {filter module:g} {scorer builtin:kv-aware} {picker builtin:best}]",
			map[string]string{"w1": "module:f", "w2": "module:g"},
			policy.ByPolicy,
		},
		{"whole policy", whole("module:whole"), "[{policy module:whole}]", map[string]string{"w3": "module:whole"}, policy.ByPolicy},
		{"whole policy that abstains", whole("module:abstains"), "[{policy module:abstains}]", map[string]string{}, policy.ByFallback},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.spec, src)
			w.join(t, workers("m1", 4)...)
			rec := w.recordOf(t, &core.Request{Partition: model("m1")})
			if got := fmt.Sprint(rec.Policy.Stages); got != c.stages {
				t.Errorf("stages %s; want %s", got, c.stages)
			}
			got := map[string]string{}
			for name, r := range rowsOf(t, rec, "w1", "w2", "w3", "w4") {
				if r.Mask == 0 {
					got[name] = r.By
				}
				if dropped := r.Mask == 0; dropped != (r.By != "") || dropped && len(r.StageScores) > 0 && r.StageScores[0] != nil {
					t.Errorf("%s: %+v", name, r)
				}
			}
			if diff := cmp.Diff(c.by, got); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
			if rec.Pick.By != c.chose || rec.Fault != nil || c.by[rec.Pick.Name] != "" {
				t.Errorf("got pick %+v, fault %+v", rec.Pick, rec.Fault)
			}
		})
	}
}

func TestFiltersThatMustNotDropEverybodyEndTheRequest(t *testing.T) {
	spec := withFilters(use("builtin:kv-aware"), "module:f")
	src := kit{"module:f": dropping("w1", "w2")}
	ignoring := newWorld(t, spec, src)
	ignoring.join(t, workers("m1", 2)...)
	ignoring.recordOf(t, &core.Request{Partition: model("m1")})

	spec.Filters[0].OnEmpty = "fail"
	w := newWorld(t, spec, src)
	w.join(t, workers("m1", 2)...)
	_, err := w.Select(t.Context(), bookRequest("r", nil))
	e := asError(err)
	if e == nil || e.Code != core.CodeNoCandidates || e.RetryAfter == 0 || !errors.Is(err, policy.ErrEmptied) {
		t.Fatalf("got %v; want no_candidates", err)
	}
	if w.active() != 0 || w.Reservations() != 0 || w.heard.decided[0].Code != core.CodeNoCandidates {
		t.Errorf("load %d, reservations %d, telemetry heard %+v", w.active(), w.Reservations(), w.heard.decided)
	}
}

func TestTheRecordShowsWhatIsMissing(t *testing.T) {
	s := &stage{score: func(context.Context, *policy.Table, []float64) error { return nil }}
	s.columns.AddStd(abi.ColKVTotalBlocks, abi.ColLoadActiveRequests)
	s.columns.Add("label.zone")
	w := newWorld(t, use("module:m"), kit{"module:m": s})
	full := record("w1", "m1")
	full.TotalKVBlocks, full.Labels = 100, map[string]string{"zone": "a"}
	w.join(t, full, record("w2", "m1"))
	got := map[string][]string{}
	for name, r := range rowsOf(t, w.recordOf(t, &core.Request{Partition: model("m1")}), "w1", "w2") {
		got[name] = r.Missing
	}
	want := map[string][]string{"w1": nil, "w2": {"kv.total_blocks", "label.zone"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheRecordHoldsTracesAndOnlyNumbers(t *testing.T) {
	f := dropping()
	f.traces = []policy.Trace{{Name: "a", Value: 1.5}, {Name: "b", Value: math.NaN()}, {Name: "c", Value: math.Inf(1)}, {Name: "d", Value: -2}}
	w := newWorld(t, withFilters(use("builtin:kv-aware"), "module:f"), kit{"module:f": f})
	w.join(t, workers("m1", 2)...)
	rec := w.recordOf(t, &core.Request{Partition: model("m1")})
	want := []core.RecordedTrace{{Stage: "module:f", Name: "a", Value: 1.5}, {Stage: "module:f", Name: "d", Value: -2}}
	if diff := cmp.Diff(want, rec.Traces); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// decided is what must have the same bits when a decision is made again.
type decided struct {
	Worker fleet.WorkerID
	By     policy.By
	Totals []uint64
	Scores [][]uint64
	Tie    policy.Tie
	Mask   []byte
}

func bits(values []float64) (out []uint64) {
	for _, v := range values {
		out = append(out, math.Float64bits(v))
	}
	return out
}

func decisionOf(tb *policy.Table, d *policy.Decision) decided {
	out := decided{Worker: tb.Rows[d.Row].ID, By: d.By, Totals: bits(d.Totals), Tie: d.Tie, Mask: slices.Clone(d.Mask)}
	for _, s := range d.StageScores {
		out.Scores = append(out.Scores, bits(s))
	}
	return out
}

// keeper remembers the bits of every decision that it observes.
type keeper struct{ seen []decided }

func (k *keeper) Observe(_ *policy.Revision, t *policy.Table, d *policy.Decision) {
	k.seen = append(k.seen, decisionOf(t, d))
}

func TestARecordedDecisionIsMadeAgainWithTheSameBits(t *testing.T) {
	softmax := use("builtin:kv-aware")
	softmax.Picker = &policy.PickerSpec{StageSpec: policy.StageSpec{Use: "builtin:softmax", Config: json.RawMessage(`{"temperature":0.7}`)}}
	two := use("builtin:least-load")
	two.Picker = &policy.PickerSpec{StageSpec: policy.StageSpec{Use: "builtin:two-choices"}}
	third := 1.0 / 3
	mixed := policy.Spec{Scorers: []policy.ScorerSpec{
		{StageSpec: policy.StageSpec{Use: "builtin:kv-aware"}, Weight: &third, Normalise: "minmax"},
		{StageSpec: policy.StageSpec{Use: "builtin:least-load"}, Normalise: "rank"},
		{StageSpec: policy.StageSpec{Use: "builtin:round-robin"}},
	}}
	lora := use("builtin:kv-aware")
	lora.Lora = []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "builtin:lora-affinity"}}}
	for name, spec := range map[string]policy.Spec{
		"kv-aware": use("builtin:kv-aware"), "mixed": mixed, "softmax": softmax, "two choices": two, "lora": lora,
		"filters":              withFilters(mixed, "module:f"),
		"filters and softmax":  withFilters(softmax, "module:f"),
		"fallback by a fault":  use("module:trap"),
		"fallback of a filter": withFilters(use("module:trap"), "module:f"),
	} {
		t.Run(name, func(t *testing.T) {
			src := kit{"module:f": dropping("w1", "w5"), "module:trap": trapping()}
			w := newWorld(t, spec, src)
			k := &keeper{}
			w.policies.handle.SetObservers(k)
			recs := workers("m1", 9)
			for i := range recs {
				recs[i].Adapters = []fleet.Adapter{{Name: "sql"}}
			}
			w.join(t, recs...)
			for i := range 40 {
				w.cache.store(fleet.Worker{ID: fleet.IDFromName(fmt.Sprint("w", i%9+1))}, prompt(byte(i%5), 16*(i%7)), 16)
				req := bookRequest("", prompt(byte(i%5), 160))
				req.Adapter = map[bool]string{true: "sql"}[i%3 == 0]
				if _, err := w.Select(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			recorded := w.Decisions().Recordings(core.DecisionFilter{})
			if len(recorded) != len(k.seen) || len(recorded) != 40 {
				t.Fatalf("%d recordings of %d decisions", len(recorded), len(k.seen))
			}
			var tb policy.Table
			var d policy.Decision
			for i, r := range recorded {
				want := k.seen[len(k.seen)-1-i]
				rev := w.policies.handle.Active()
				columns := rev.Columns()
				if lacking := r.Frame.Table(&tb, columns); lacking != nil {
					t.Fatalf("the frame lacks %v", lacking)
				}
				err := rev.Replay(t.Context(), &tb, &d)
				if (err != nil) != (want.By == policy.ByFallback) {
					t.Fatalf("%s decided; again: %v", want.By, err)
				}
				if err != nil && i < len(recorded)-3 { // tripped by then: no filter was asked
					r.Frame.Table(&tb, columns)
					d = policy.Decision{}
				}
				if err != nil {
					rev.ReplayFallback(t.Context(), &tb, &d)
				}
				got := decisionOf(&tb, &d)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("decision %s (-first +again):\n%s", r.Record.ID, diff)
				}
				rec, _ := w.Decisions().Get(r.Record.ID)
				for row, keep := range want.Mask {
					if rows := rec.Rows; rows[row].Mask != int(keep) || (rows[row].By == "module:f") != (keep == 0) {
						t.Errorf("the record of a decision by the %s has row %d with mask %d by %q; want %d", want.By, row, rows[row].Mask, rows[row].By, keep)
					}
				}
				if r.Record.Pick.Worker != got.Worker || r.Record.Rows != nil {
					t.Errorf("the record picked %v, again it is %v; rows %d", r.Record.Pick.Worker, got.Worker, len(r.Record.Rows))
				}
			}
		})
	}
}

func TestFramesHoldEveryColumnThatAKeptRevisionReads(t *testing.T) {
	w := newWorld(t, use("builtin:least-load"), nil)
	other := revisionOf(t, "default", 2, use("builtin:kv-aware"), nil)
	w.policies.handle.Keep(other.Columns())
	w.join(t, workers("m1", 3)...)
	rec := w.recordOf(t, bookRequest("r", prompt('A', 64)))
	got, ok := w.Decisions().Recording(rec.ID)
	if !ok {
		t.Fatal("no recording")
	}
	var tb policy.Table
	if lacking := got.Frame.Table(&tb, other.Columns()); lacking != nil {
		t.Errorf("the frame lacks %v", lacking)
	}
	if _, ok := w.Decisions().Recording("nobody"); ok {
		t.Error("found a recording that was never made")
	}
}

func TestAFrameIsTheCallersOwn(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) { c.DecisionEntries = 2 })
	w.join(t, workers("m1", 3)...)
	rec := w.recordOf(t, bookRequest("r", prompt('A', 64)))
	got, _ := w.Decisions().Recording(rec.ID)
	before := got.Frame.Field(abi.FieldISLTokens)
	for i := range 10 { // the entry is evicted and its buffers are used again
		w.recordOf(t, bookRequest(fmt.Sprint(i), prompt('B', 128)))
	}
	if after := got.Frame.Field(abi.FieldISLTokens); before != 64 || after != 64 {
		t.Errorf("the frame is of a prompt of %v tokens, then of %v; want 64", before, after)
	}
	var empty policy.Table
	empty.Reset(1, policy.ColumnSet{})
	got.Frame.Take(&empty)
	if again, ok := w.Decisions().Recording(rec.ID); ok {
		t.Errorf("the evicted entry is still there: %v", again.Record.ID)
	}
}

// TestReadingRacesWithRecording is for the race detector: entries that are read
// are not filled again.
func TestReadingRacesWithRecording(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) { c.DecisionEntries = 4 })
	w.join(t, workers("m1", 8)...)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for i := range 300 {
				if _, err := w.Select(t.Context(), &core.Request{Partition: model("m1"), Prompt: core.Prompt{Count: i}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	for {
		for _, r := range w.Decisions().Recordings(core.DecisionFilter{}) {
			if got := int(r.Frame.Field(abi.FieldISLTokens)); got != r.Record.Request.Tokens {
				t.Fatalf("frame of %d tokens under a record of %d", got, r.Record.Request.Tokens)
			}
		}
		for _, r := range w.Decisions().List(core.DecisionFilter{Limit: 2}) {
			if full, ok := w.Decisions().Get(r.ID); ok && (full.Request.Tokens != r.Request.Tokens || len(full.Rows) != 8) {
				t.Fatalf("got %+v by the id of %+v", full.Request, r.Request)
			}
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func TestAnEntryThatIsFarTooLargeIsNotUsedAgain(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) { c.DecisionEntries, c.DecisionBytes = 1024, 1<<20 })
	w.join(t, workers("m1", 512)...)
	w.join(t, workers8()...)
	for range 40 { // as many as fit
		w.recordOf(t, &core.Request{Partition: model("m1")})
	}
	for range 600 {
		w.recordOf(t, &core.Request{Partition: model("m2")})
	}
	if n := w.Decisions().Len(); n < 400 {
		t.Errorf("%d small records in 1 MiB; want at least 400", n)
	}
}

func workers8() []fleet.Record {
	var out []fleet.Record
	for i := range 8 {
		out = append(out, record(fmt.Sprint("s", i), "m2"))
	}
	return out
}

func TestAtHighRatesASampleIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) { c.DecisionRate = 10 })
		w.join(t, workers("m1", 2)...)
		recorded := func(n int, pause time.Duration) (kept int) {
			for range n {
				sel, err := w.Select(t.Context(), &core.Request{Partition: model("m1")})
				if err != nil {
					t.Fatal(err)
				}
				_, ok := w.Decisions().Get(sel.DecisionID)
				if e := w.heard.decided[len(w.heard.decided)-1]; e.Recorded != ok {
					t.Fatalf("telemetry heard recorded %v; it is %v", e.Recorded, ok)
				}
				if ok {
					kept++
				}
				<-time.After(pause)
			}
			return kept
		}
		if got := recorded(50, 0); got != 50 {
			t.Errorf("%d of the first 50 were recorded; want all", got)
		}
		if got := recorded(1000, 10*time.Millisecond); got < 90 || got > 110 {
			t.Errorf("%d of 1,000 in 10 s were recorded; want 10 a second", got)
		}
		<-time.After(time.Minute)
		if got := recorded(100, 100*time.Millisecond); got != 100 {
			t.Errorf("%d of 100 in 10 s were recorded; want all", got)
		}
	})
}
