package policy_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// frames records n requests: the load of rank 0 grows from request to request,
// rank 1 has always 5, rank 2 always 9.
func frames(n int) (out []*policy.Recording) {
	var set policy.ColumnSet
	set.AddStd(abi.ColLoadActiveRequests, abi.ColKVOverlapDevice, abi.ColUpstreamScore)
	for _, use := range policy.Builtins() {
		s, _ := policy.Builtin(use, nil)
		set.Union(s.Columns())
	}
	for i := range n {
		tb := table(3, set)
		tb.Seed = policy.SplitMix64(uint64(i))
		for row := range tb.Rows {
			tb.Rows[row] = fleet.Worker{ID: fleet.WorkerID(100 + row), Rank: uint32(row)}
		}
		tb.SetField(abi.FieldBlockSize, 16)
		copy(tb.Fill(abi.ColLoadActiveRequests), []float64{float64(i), 5.5, 9.5})
		r := &policy.Recording{}
		r.Take(tb)
		out = append(out, r)
	}
	return out
}

func TestTrialComparesPicks(t *testing.T) {
	// The base takes the least loaded rank, the candidate the last one but for
	// the first two requests.
	n := 0
	last := &scripted{answer: func(_ *policy.Table, out []float64) (policy.Verdict, error) {
		clear(out)
		if out[2] = 1; n < 2 {
			out[0], out[2] = 1, 0
		}
		n++
		return policy.Answered, nil
	}}
	base := revision(t, use("builtin:least-load"), nil)
	spec := use("module:m", "builtin:round-robin")
	spec.Scorers[1].Weight = ptr(1e-6)
	candidate := revision(t, spec, modules{"module:m": last})
	// Leaving out the module asks it once a frame, leaving out the other again.
	got := policy.Trial(t.Context(), base, candidate, frames(8))
	if got.Frames != 8 || got.Decided != 8 || got.Compared != 8 || got.LackingFrames != 0 || len(got.Faults) != 0 {
		t.Fatalf("got %+v", got)
	}
	want := []policy.TrialChange{}
	for i := 1; i < 8; i++ { // the module is called twice a frame: n passes 2 after the first
		c := policy.TrialChange{Frame: i, Base: policy.TrialRow{Row: 0, Worker: 100}, Candidate: policy.TrialRow{Row: 2, Worker: 102, Rank: 2}}
		if i > 5 {
			c.Base = policy.TrialRow{Row: 1, Worker: 101, Rank: 1}
		}
		want = append(want, c)
	}
	if diff := cmp.Diff(want, got.Changed); diff != "" || got.Agreed != 1 {
		t.Errorf("agreed in %d; changed (-want +got):\n%s", got.Agreed, diff)
	}
	// 9.5 against 1, 2, 3, 4, 5, 5.5, 5.5.
	if want := (policy.Regret{Sum: 8.5 + 7.5 + 6.5 + 5.5 + 4.5 + 4 + 4, Max: 8.5}); got.Regret != want {
		t.Errorf("got regret %+v, want %+v", got.Regret, want)
	}
}

func TestTrialTellsWhichTermsDecide(t *testing.T) {
	spec := use("builtin:least-load", "module:small", "module:x")
	spec.Scorers[1].Weight = ptr(1e-9)
	spec.Scorers[2].Weight = ptr(0)
	spec.Lora = []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: policy.LoraAffinity}}}
	candidate := revision(t, spec, modules{"module:small": scores(0, 1, 0), "module:x": scores(3, 2, 1)})
	got := policy.Trial(t.Context(), nil, candidate, frames(10))
	want := []policy.TrialScorer{
		// Without the load the second rank is picked, which it is from request 6 on.
		{StageName: policy.StageName{Kind: abi.KindScorer, Use: "builtin:least-load"}, Scored: 10, Decisive: 6},
		{StageName: policy.StageName{Kind: abi.KindScorer, Use: "module:small"}, Scored: 10},
		{StageName: policy.StageName{Kind: abi.KindScorer, Use: "module:x"}, Scored: 10},
		{StageName: policy.StageName{Kind: abi.KindLoraScorer, Use: "builtin:lora-affinity"}},
	}
	// The recordings have no lora columns: they lack them.
	if got.LackingFrames != 10 || got.Decided != 0 {
		t.Fatalf("got %+v; want every frame to lack the lora columns", got)
	}
	if diff := cmp.Diff([]string{"lora.in_replica_set", "lora.loaded"}, got.Lacking); diff != "" {
		t.Errorf("lacking (-want +got):\n%s", diff)
	}
	spec.Lora = nil
	candidate = revision(t, spec, modules{"module:small": scores(0, 1, 0), "module:x": scores(3, 2, 1)})
	got = policy.Trial(t.Context(), nil, candidate, frames(10))
	if diff := cmp.Diff(want[:3], got.Scorers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Compared != 0 || got.Decided != 10 {
		t.Errorf("got %+v; want nothing compared without a base", got)
	}
}

func TestTrialCountsWhatWasNotDecided(t *testing.T) {
	faults := &scripted{answer: func(t *policy.Table, out []float64) (policy.Verdict, error) {
		if clear(out); t.Column(abi.ColLoadActiveRequests)[0] < 3 {
			return 0, trap
		}
		return policy.Answered, nil
	}}
	faults.columns.AddStd(abi.ColLoadActiveRequests)
	empties := &filtering{answer: func(t *policy.Table, keep []byte) (policy.Verdict, error) {
		if t.Column(abi.ColLoadActiveRequests)[0] > 6 {
			clear(keep)
		}
		return policy.Answered, nil
	}}
	empties.columns.AddStd(abi.ColLoadActiveRequests)
	spec := filtered([]string{"module:f"}, []string{"module:m"}, func(s *policy.Spec) { s.Filters[0].OnEmpty = "fail" })
	candidate := revision(t, spec, modules{"module:f": empties, "module:m": faults})
	list := append(frames(10), &policy.Recording{}) // an empty one is passed over
	got := policy.Trial(t.Context(), candidate, candidate, list)
	if got.Frames != 10 || got.Decided != 4 || got.Faults["trap"] != 3 || got.Emptied != 3 || got.Agreed != 4 {
		t.Errorf("got %+v; want 3 traps, 4 decided and agreed, 3 emptied", got)
	}
	if s := candidate.Stats(); s.Calls != 0 || len(s.Faults) != 0 || candidate.State() == policy.Tripped {
		t.Errorf("a trial was counted: %+v", s)
	}
}

func TestTrialRegretLeavesOutWhatTheBaseDropped(t *testing.T) {
	base := revision(t, filtered([]string{"module:f"}, []string{"builtin:least-load"}, nil), modules{"module:f": keeps("110")})
	candidate := revision(t, use("module:m"), modules{"module:m": scores(0, 0, 1)})
	got := policy.Trial(t.Context(), base, candidate, frames(4))
	if got.Regret != (policy.Regret{Dropped: 4}) || got.Compared != 4 || got.Agreed != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestTrialIsRepeatableAndBounded(t *testing.T) {
	base := revision(t, use("builtin:least-load"), nil)
	candidate := revision(t, filtered(nil, []string{"builtin:kv-aware", "builtin:round-robin"}, func(s *policy.Spec) {
		s.Picker = &policy.PickerSpec{StageSpec: policy.StageSpec{Use: policy.SoftmaxPicker, Config: json.RawMessage(`{"temperature":5}`)}}
	}), nil)
	list := frames(100)
	first := policy.Trial(t.Context(), base, candidate, list)
	if diff := cmp.Diff(first, policy.Trial(t.Context(), base, candidate, list)); diff != "" {
		t.Errorf("(-first +second):\n%s", diff)
	}
	if len(first.Changed) != 20 || first.Agreed > 80 {
		t.Errorf("got %d changes of %d disagreements; want the first 20", len(first.Changed), first.Compared-first.Agreed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := policy.Trial(ctx, base, candidate, list); got.Frames != 0 {
		t.Errorf("a cancelled trial tried %d frames", got.Frames)
	}
}

func TestTrialAsksTheFallbackOfABaseThatFaults(t *testing.T) {
	spec := use("module:m")
	spec.Fallback = "builtin:least-load"
	base := revision(t, spec, modules{"module:m": faulty(*trap)})
	got := policy.Trial(t.Context(), base, revision(t, use("builtin:least-load"), nil), frames(10))
	if got.Compared != 10 || got.Agreed != 10 || got.Regret != (policy.Regret{}) {
		t.Errorf("got %+v; want all to agree with the fallback", got)
	}
}

func TestReplayFallbackIsWhatATrippedRevisionDecides(t *testing.T) {
	spec := filtered([]string{"module:f"}, []string{"module:m"}, func(s *policy.Spec) { s.Fallback = "builtin:least-load" })
	rev := revision(t, spec, modules{"module:f": keeps("011"), "module:m": faulty(*trap)})
	tb := busyTable(3, rev.Columns())
	var tripped, again policy.Decision
	for range 4 {
		if err := rev.Decide(t.Context(), tb, &tripped); err != nil {
			t.Fatal(err)
		}
	}
	calls := rev.Stats().Calls
	rev.ReplayFallback(t.Context(), tb, &again)
	if rev.State() != policy.Tripped && rev.Stats().Trips != 1 || rev.Stats().Calls != calls {
		t.Errorf("got state %s, %+v", rev.State(), rev.Stats())
	}
	if again.Row != tripped.Row || again.By != policy.ByFallback || again.Tie != tripped.Tie {
		t.Errorf("got row %d by %s; want %d", again.Row, again.By, tripped.Row)
	}
	if diff := cmp.Diff(tripped.Totals, again.Totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
}
