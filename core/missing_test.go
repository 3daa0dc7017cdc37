package core_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// gaps is a policy that reads every column and notes for each worker which of
// them have no signal.
type gaps struct {
	stage
	missing map[string]map[fleet.WorkerID]bool
}

func newGaps(labels ...string) *gaps {
	g := &gaps{}
	for i := range abi.NumColumns {
		g.columns.AddStd(abi.Column(i))
	}
	for _, l := range labels {
		g.columns.Add(l)
	}
	g.score = func(_ context.Context, tb *policy.Table, _ []float64) error {
		g.missing = map[string]map[fleet.WorkerID]bool{}
		set := tb.Set()
		for _, name := range set.Names() {
			g.missing[name] = map[fleet.WorkerID]bool{}
			for row, w := range tb.Rows {
				g.missing[name][w.ID] = tb.NamedCells(name).Missing(row)
			}
		}
		return nil
	}
	return g
}

// on lists the columns without a signal on the worker called name.
func (g *gaps) on(name string) map[string]bool {
	out := map[string]bool{}
	for column, workers := range g.missing {
		if workers[fleet.IDFromName(name)] {
			out[column] = true
		}
	}
	return out
}

func setOf(names ...string) map[string]bool {
	out := map[string]bool{}
	for _, n := range names {
		out[n] = true
	}
	return out
}

// sourceless are the columns of which the ABI says that nothing fills them yet, and
// those of engines' reports, of which there are none here.
func sourceless() (names []string) {
	names = append(names, "engine.queued", "engine.running", "engine.report_age_ms")
	for _, c := range abi.Columns() {
		if c.NotYet {
			names = append(names, c.Name)
		}
	}
	return names
}

func TestUnknownSignalsAreMissing(t *testing.T) {
	g := newGaps("label.zone", "label.rack", "label_num.price", "label_num.zone")
	w := newWorld(t, use("module:gaps"), stages{g})
	full, bare := record("full", "m1"), record("bare", "m1")
	full.MaxBatchedTokens, full.TotalKVBlocks = 8192, 5000
	full.Labels = map[string]string{"zone": "a", "price": "0", "rack": ""}
	bare.Labels = map[string]string{"price": "cheap"}
	full.Adapters = []fleet.Adapter{{Name: "sql"}}
	bare.Adapters = full.Adapters
	w.join(t, full, bare)

	ofRecord := []string{"kv.total_blocks", "kv.usage", "worker.max_batched_tokens", "label.zone", "label.rack", "label_num.price"}
	overlaps := []string{"kv.overlap_device", "kv.overlap_host", "kv.overlap_disk", "kv.overlap_shared"}
	for _, c := range []struct {
		name    string
		prompt  core.Prompt
		adapter string
		also    []string // missing on both
	}{
		{"tokens and an adapter", core.Prompt{Tokens: prompt('A', 40)}, "sql", nil},
		{"no adapter", core.Prompt{Tokens: prompt('A', 40)}, "", []string{"lora.loaded", "lora.loading", "lora.active", "lora.is_active"}},
		{"hashes", core.Prompt{Blocks: hashes(2), Count: 40}, "sql", nil},
		{"a length without hashes", core.Prompt{Count: 40}, "sql", overlaps},
		{"too short for a block", core.Prompt{Count: 10}, "sql", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := w.Select(t.Context(), &core.Request{Partition: model("m1"), Adapter: c.adapter, Prompt: c.prompt}); err != nil {
				t.Fatal(err)
			}
			always := append(append([]string{"label_num.zone", "upstream.score", "lora.max", "lora.in_replica_set", "lora.last_used_ms"}, sourceless()...), c.also...)
			if diff := cmp.Diff(setOf(always...), g.on("full")); diff != "" {
				t.Errorf("full record (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(setOf(append(always, ofRecord...)...), g.on("bare")); diff != "" {
				t.Errorf("bare record (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecordsKeepTheRegistryDefaultOfMissingSignals(t *testing.T) {
	g := newGaps("label_num.price")
	w := newWorld(t, use("module:gaps"), stages{g})
	w.join(t, record("w1", "m1"))
	sel, err := w.Select(t.Context(), &core.Request{Partition: model("m1")})
	if err != nil {
		t.Fatal(err)
	}
	rec, _ := w.Decisions().Get(sel.DecisionID)
	for _, name := range []string{"kv.total_blocks", "engine.report_age_ms", "worker.weight", "label_num.price"} {
		if got := rec.Rows[0].Columns[name]; !g.on("w1")[name] || got != missing(name) {
			t.Errorf("%s: recorded %v; want it missing and recorded as %v", name, got, missing(name))
		}
	}
}
