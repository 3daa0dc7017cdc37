package app_test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
)

// values are the samples of the routerd_policy series by name and labels;
// histograms by their count and sum.
func values(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), "routerd_policy_")
		if !ok {
			continue
		}
		for _, m := range f.GetMetric() {
			id := name
			for _, l := range m.GetLabel() {
				id += " " + l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				out[id+" count"], out[id+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
				continue
			}
			out[id] = m.GetCounter().GetValue()
		}
	}
	return out
}

// revisions counts the revisions of each policy that have series.
func revisions(values map[string]float64) map[string]int {
	seen := map[string]map[string]bool{}
	for id := range values {
		parts := strings.Fields(id) // name, labels in alphabetical order
		name, number := parts[1], parts[2]
		switch parts[0] {
		case "decisions_total":
			name, number = parts[2], parts[3]
		case "faults_total":
			number = parts[len(parts)-1]
		}
		if seen[name] == nil {
			seen[name] = map[string]bool{}
		}
		seen[name][number] = true
	}
	out := map[string]int{}
	for name, numbers := range seen {
		out[name] = len(numbers)
	}
	return out
}

func TestDecisionsAreJudgedByRevision(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := app.NewSelectionMetrics(reg)
	tell := func(e core.DecisionEvent) {
		e.Policy, e.Recorded = "p", true
		m.Decided(&e)
	}
	good := core.DecisionEvent{
		Kind: core.Book, Revision: 1, By: policy.ByPolicy, Fuel: 100, Deciding: time.Second,
		CachedBest: 64, CachedSelected: 48, LoadSpread: 1.5,
	}
	tell(good)
	tell(good)
	fallback := good
	fallback.By, fallback.FaultReason, fallback.CachedSelected = policy.ByFallback, "trap", 0
	tell(fallback)
	advisory := good
	advisory.Kind = core.Advisory
	tell(advisory)
	tell(core.DecisionEvent{Kind: core.Book, Revision: 1, By: policy.ByPin})
	tell(core.DecisionEvent{Kind: core.Book, Revision: 1, Code: core.CodePolicyFailed, FaultReason: "nan", Fuel: 7})
	canary := good
	canary.Revision, canary.Canary = 2, true
	tell(canary)
	m.Decided(&core.DecisionEvent{Kind: core.Book, Code: core.CodeNoWorkers}) // no policy was asked
	want := map[string]float64{
		"decisions_total policy p 1": 3, "decisions_total fallback p 1": 1, "decisions_total pin p 1": 1, "decisions_total session p 1": 0,
		"decisions_total policy p 2": 1, "decisions_total fallback p 2": 0, "decisions_total pin p 2": 0, "decisions_total session p 2": 0,
		"faults_total p trap 1": 1, "faults_total p nan 1": 1,
		"cached_tokens_best_total p 1": 192, "cached_tokens_selected_total p 1": 96,
		"cached_tokens_best_total p 2": 64, "cached_tokens_selected_total p 2": 48,
		"fuel_total p 1": 407, "fuel_total p 2": 100,
		"load_spread p 1 count": 3, "load_spread p 1 sum": 4.5, "load_spread p 2 count": 1, "load_spread p 2 sum": 1.5,
		"decision_seconds p 1 count": 4, "decision_seconds p 1 sum": 4, "decision_seconds p 2 count": 1, "decision_seconds p 2 sum": 1,
	}
	if diff := cmp.Diff(want, values(t, reg)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSeriesOfTheRevisionsThatDecidedLastStay(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := app.NewSelectionMetrics(reg)
	tell := func(name string, revision int) {
		m.Decided(&core.DecisionEvent{Kind: core.Book, Policy: name, Revision: revision, By: policy.ByFallback, FaultReason: "trap"})
	}
	tell("other", 1)
	for n := range 100 {
		tell("p", n+1)
		tell("p", 1) // an old revision that still decides
	}
	got := values(t, reg)
	if diff := cmp.Diff(map[string]int{"p": 10, "other": 1}, revisions(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, n := range []int{1, 100, 92} {
		if got["faults_total p trap "+strconv.Itoa(n)] == 0 {
			t.Errorf("revision %d has no series", n)
		}
	}
	if got["faults_total p trap 1"] != 101 {
		t.Errorf("revision 1 has %v faults; want 101", got["faults_total p trap 1"])
	}
}

// onePolicy resolves every rule to one handle.
type onePolicy struct{ handle *policy.Handle }

func (o onePolicy) Resolve(fleet.PartitionKey, string) (*policy.Handle, error) { return o.handle, nil }

func TestAThousandSwapsLeaveTenRevisions(t *testing.T) {
	const swaps, callers = 1000, 4
	revision := func(n int) *policy.Revision {
		p, digests, err := policy.Compile(t.Context(), policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "builtin:kv-aware"}}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return policy.NewRevision("p", n, policy.Spec{}, p, digests)
	}
	active := revision(1)
	handle, err := policy.NewHandle(active)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	c := core.New(core.DefaultConfig(), core.SelectionHost{Telemetry: app.NewSelectionMetrics(reg)}, onePolicy{handle}, core.NoIndex{}, nil)
	key := fleet.PartitionKey{Model: "m"}
	if err := c.Prepare(t.Context(), key, 16); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		rec := fleet.Record{NoHealthCheck: true, Name: fmt.Sprint("w", i), Model: "m", URL: "http://127.0.0.1:1"}
		if err := c.Commit(core.Change{Upserts: []core.Member{{Record: rec, Lifecycle: core.Ready}}}); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := c.Select(t.Context(), &core.Request{Partition: key}); err != nil {
					t.Error(err)
				}
				runtime.Gosched()
			}
		})
	}
	for n := range swaps {
		next := revision(n + 2)
		if err := handle.Publish(next); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Select(t.Context(), &core.Request{Partition: key}); err != nil {
			t.Fatal(err)
		}
		active.Retire()
		active = next
	}
	close(done)
	wg.Wait()
	if diff := cmp.Diff(map[string]int{"p": 10}, revisions(values(t, reg))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
