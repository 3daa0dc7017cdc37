package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/plugins/abi"
)

func TestDecisionRecordExplainsAChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, use("builtin:least-load"), nil)
		var kept policy.ColumnSet
		kept.AddStd(abi.ColKVOverlapDevice)
		w.policies.handle.Keep(kept)
		w.join(t, workers("m1", 2)...)
		seed := uint64(1) << 63
		w.cache.store(fleet.Worker{ID: fleet.IDFromName("w2")}, prompt('A', 32), 16)
		sel, err := w.Select(t.Context(), &core.Request{
			Kind: core.Query, Surface: "frontend", Partition: model("m1"), Prompt: core.Prompt{Tokens: prompt('A', 40)},
			Session: "customer-17", Tenant: "acme", RequestID: "req-1", Seed: &seed,
		})
		if err != nil {
			t.Fatal(err)
		}
		rec, ok := w.Decisions().Get(sel.DecisionID)
		if !ok {
			t.Fatal("no record")
		}
		text, err := json.MarshalIndent(rec, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"customer-17", "acme", fmt.Sprint(prompt('A', 1)[0])} {
			if strings.Contains(string(text), secret) {
				t.Errorf("the record holds %q:\n%s", secret, text)
			}
		}
		w1, w2 := fleet.IDFromName("w1"), fleet.IDFromName("w2")
		zero := 0.0
		row := func(id fleet.WorkerID, overlap float64) core.RecordedRow {
			return core.RecordedRow{
				Worker: id, Mask: 1, StageScores: []*float64{&zero},
				Columns: map[string]float64{
					"kv.overlap_device": overlap, "kv.overlap_host": 0, "kv.overlap_disk": 0, "kv.overlap_shared": 0,
					"load.prefill_tokens": 0, "load.active_requests": 0, "load.potential_prefill_tokens": 40,
					"load.potential_decode_blocks": 3, "taint.preference": 1,
				},
			}
		}
		rows := []core.RecordedRow{row(w1, 0), row(w2, 2)}
		if w2 < w1 {
			rows[0], rows[1] = rows[1], rows[0]
		}
		draw := policy.TieDraw(seed)
		pick := rows[int(draw*2)].Worker
		want := core.DecisionRecord{
			ID: "req-1.1", At: time.Now(), Partition: core.PartitionRef{Model: "m1", Group: "default"},
			Kind: "query", Surface: "frontend",
			Policy: core.RecordedPolicy{Name: "default", Revision: 1, Digests: []string{}, Stages: []policy.StageName{
				{Kind: abi.KindScorer, Use: "builtin:least-load"}, {Kind: abi.KindPicker, Use: "builtin:best"},
			}},
			Request: core.RecordedRequest{
				Tokens: 40, Blocks: 2, SessionHash: uint64(abi.ID("customer-17")), Seed: seed,
			},
			Rows: rows, Tie: core.RecordedTie{Rows: 2, Draw: draw},
			Pick: core.RecordedPick{Worker: pick, Name: map[fleet.WorkerID]string{w1: "w1", w2: "w2"}[pick], By: policy.ByPolicy},
		}
		if diff := cmp.Diff(want, rec); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if byRequest, ok := w.Decisions().Get("req-1"); !ok || byRequest.ID != "req-1.1" {
			t.Errorf("by request id: got %v, %v", byRequest.ID, ok)
		}
	})
}

func TestDecisionLogKeepsTheLastWithinItsBounds(t *testing.T) {
	for name, c := range map[string]struct {
		entries, bytes int
		low, high      int
	}{"entries": {10, 64 << 20, 10, 10}, "bytes": {1024, 1 << 16, 10, 40}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, use("builtin:kv-aware"), nil, func(cfg *core.Config) {
				cfg.DecisionEntries, cfg.DecisionBytes = c.entries, c.bytes
			})
			w.join(t, workers("m1", 20)...)
			for i := range 100 {
				if _, err := w.Select(t.Context(), &core.Request{Partition: model("m1"), RequestID: fmt.Sprint("r", i)}); err != nil {
					t.Fatal(err)
				}
			}
			n := w.Decisions().Len()
			if n < c.low || n > c.high {
				t.Errorf("kept %d; want %d to %d", n, c.low, c.high)
			}
			list := w.Decisions().List(core.DecisionFilter{Limit: 3})
			var ids []string
			for _, r := range list {
				ids = append(ids, r.ID)
				if r.Rows != nil {
					t.Error("a list holds rows")
				}
			}
			if diff := cmp.Diff([]string{"r99.2s", "r98.2r", "r97.2q"}, ids); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, ok := w.Decisions().Get("r0"); ok {
				t.Error("the oldest record is still there")
			}
			if got := w.Decisions().List(core.DecisionFilter{RequestID: "r98", Policy: "default", By: "policy"}); len(got) != 1 {
				t.Errorf("filter found %d; want 1", len(got))
			}
			if got := w.Decisions().List(core.DecisionFilter{Partition: fleet.PartitionKey{Model: "m2"}}); len(got) != 0 {
				t.Errorf("filter found %d; want 0", len(got))
			}
		})
	}
}

// TestTableHoldsWhatHasASource reads every column and field that this version
// fills through a policy that asks for all.
func TestTableHoldsWhatHasASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var columns, fields map[string]float64
		s := &stage{}
		for i := range abi.NumColumns {
			s.columns.AddStd(abi.Column(i))
		}
		s.columns.Add("label.zone")
		s.columns.Add("label_num.price")
		s.columns.Add("label_num.zone")
		s.score = func(_ context.Context, tb *policy.Table, scores []float64) error {
			columns, fields = map[string]float64{}, map[string]float64{}
			set := tb.Set()
			for _, name := range set.Names() {
				if v := tb.Named(name)[0]; v != missing(name) {
					columns[name] = v
				}
			}
			for i := range abi.NumFields {
				if v := tb.Field(abi.Field(i)); v != 0 {
					fields[abi.Field(i).String()] = v
				}
			}
			return nil
		}
		w := newWorld(t, use("module:all"), stages{s})
		rec := record("w1", "m1")
		rec.ID, rec.DPStart, rec.MaxBatchedTokens, rec.TotalKVBlocks = math.MaxUint64, 3, 8192, 5000
		rec.Labels = map[string]string{"zone": "a", "price": "1.5"}
		rec.Adapters = []fleet.Adapter{{Name: "sql"}}
		w.join(t, rec, record("w2", "m1"))
		<-time.After(1500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := w.Select(ctx, &core.Request{
			Kind: core.Advisory, Partition: model("m1"), Adapter: "sql", Prompt: core.Prompt{Tokens: prompt('A', 100), Salt: "s"},
			Session: "s1", ParentSession: "s0", Tenant: "t", Priority: 3, MaxTokens: 7, ExpectedOutput: 5, Temperature: 0.5,
			Streaming: true, SessionFinal: true, Arrival: time.Now().Add(-250 * time.Millisecond),
		}); err != nil {
			t.Fatal(err)
		}
		wantColumns := map[string]float64{
			"kv.index_trusted": 1, "kv.total_blocks": 5000, "load.potential_prefill_tokens": 100, "load.potential_decode_blocks": 7,
			"worker.id": abi.ID("18446744073709551615"), "worker.dp_rank": 3, "worker.max_batched_tokens": 8192,
			"worker.age_ms": 1500, "lora.loaded": 1, "label.zone": abi.ID("a"), "label_num.price": 1.5,
		}
		if diff := cmp.Diff(wantColumns, columns); diff != "" {
			t.Errorf("columns (-want +got):\n%s", diff)
		}
		local, err := kvcache.BlockHashes(nil, prompt('A', 100), 16, kvcache.Seed("sql", "s"))
		if err != nil {
			t.Fatal(err)
		}
		wantFields := map[string]float64{
			"prefix_hash": float64(uint64(kvcache.SequenceHashes(nil, local)[5]) >> 11), // of all six blocks
			"isl_tokens":  100, "isl_blocks": 6, "block_size": 16, "osl_estimate": 5, "max_tokens": 7, "priority": 3,
			"temperature": 0.5, "deadline_ms": 2000, "queue_age_ms": 250, "has_lora": 1, "n_total_workers": 2, "streaming": 1,
			"session_final": 1, "now_ms": float64(time.Now().UnixMilli()), "decision_id": 1, "tenant": abi.ID("t"),
			"model": abi.ID("m1"), "session": abi.ID("s1"), "parent_session": abi.ID("s0"), "adapter": abi.ID("sql"),
		}
		if diff := cmp.Diff(wantFields, fields); diff != "" {
			t.Errorf("fields (-want +got):\n%s", diff)
		}
	})
}

func missing(column string) float64 {
	if c, ok := abi.ColumnByName(column); ok {
		return c.Info().Missing
	}
	return 0
}

func TestRequestsAreRefusedByField(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, workers("m1", 1)...)
	long := strings.Repeat("x", 257)
	many := map[string]string{}
	for i := range 17 {
		many[fmt.Sprint("h", i)] = "v"
	}
	if _, err := w.Select(t.Context(), &core.Request{Partition: model("m1"), Headers: many}); asError(err) == nil || asError(err).Field != "headers" {
		t.Errorf("17 headers: got %v; want headers refused", err)
	}
	for field, req := range map[string]core.Request{
		"selection_id":    {SelectionID: long},
		"class":           {Class: long},
		"session":         {Session: long},
		"parent_session":  {ParentSession: long},
		"tenant":          {Tenant: long},
		"request_id":      {RequestID: long},
		"prompt.count":    {Prompt: core.Prompt{Count: -1}},
		"prompt.more":     {Prompt: core.Prompt{More: -1}},
		"max_tokens":      {MaxTokens: -1},
		"expected_output": {ExpectedOutput: math.MaxInt},
		"temperature":     {Temperature: math.NaN()},
		"kind":            {Kind: 9},
		"headers":         {Headers: map[string]string{"X-Team": "a"}},
		"headers.x-team":  {Headers: map[string]string{"x-team": long}},
		"pin":             {Pin: &core.Pin{}},
	} {
		t.Run(field, func(t *testing.T) {
			req.Partition = model("m1")
			_, err := w.Select(t.Context(), &req)
			if e := asError(err); e == nil || e.Code != core.CodeInvalid || e.Field != field || len(e.Message) > 200 {
				t.Errorf("got %v; want %s refused", err, field)
			}
		})
	}
}

func TestEmptyTokensWinOverHashes(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, workers("m1", 1)...)
	for name, c := range map[string]struct {
		prompt         core.Prompt
		tokens, blocks int
	}{
		"empty tokens":       {core.Prompt{Tokens: []uint32{}, Blocks: hashes(4), Count: 64}, 0, 0},
		"hashes":             {core.Prompt{Blocks: hashes(4), Count: 70, Exact: true}, 70, 4},
		"hashes of too many": {core.Prompt{Blocks: hashes(4), Count: 10}, 64, 4},
		"estimate":           {core.Prompt{Count: 70}, 70, 4},
		"batch of tokens":    {core.Prompt{Tokens: prompt('A', 40), More: 30}, 70, 4},
		"batch of hashes":    {core.Prompt{Blocks: hashes(4), Count: 10, More: 16}, 80, 5},
		"batch of estimates": {core.Prompt{Count: 40, More: 30}, 70, 4},
	} {
		t.Run(name, func(t *testing.T) {
			sel, err := w.Select(t.Context(), &core.Request{Partition: model("m1"), Prompt: c.prompt})
			if err != nil || sel.PromptTokens != c.tokens || sel.PromptBlocks != c.blocks {
				t.Errorf("got %+v, %v; want %d tokens, %d blocks", sel, err, c.tokens, c.blocks)
			}
		})
	}
}

func TestSelectionTellsBlockSizeAndRanksOfTheWorker(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	rec := record("w1", "m1")
	rec.DPStart, rec.DPSize = 2, 3
	w.join(t, rec, record("w2", "m1"))
	for name, ranks := range map[string]int{"w1": 3, "w2": 1} {
		sel, err := w.Select(t.Context(), &core.Request{Partition: model("m1"), Allow: []string{name}})
		if err != nil || sel.Ranks != ranks || sel.BlockSize != 16 {
			t.Errorf("got %+v, %v; want %d ranks, blocks of 16", sel, err, ranks)
		}
	}
}

func TestSeedFixesTheDrawsAndIsKept(t *testing.T) {
	run := func(seed uint64) (picks []string) {
		w := newWorld(t, use("builtin:kv-aware"), nil, func(c *core.Config) { c.Seed = &seed })
		w.join(t, workers("m1", 4)...)
		for range 20 {
			req := &core.Request{Partition: model("m1")}
			first, err := w.Select(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			again, err := w.Select(t.Context(), req)
			if err != nil || again.Name != first.Name {
				t.Fatalf("the second attempt got %v, %v; want %s by the same seed", again, err, first.Name)
			}
			picks = append(picks, first.Name)
		}
		return picks
	}
	a, b, c := run(1), run(1), run(2)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("same seed (-first +second):\n%s", diff)
	}
	if cmp.Equal(a, c) {
		t.Error("another seed gives the same draws")
	}
}

func asError(err error) *core.Error {
	e, _ := errors.AsType[*core.Error](err)
	return e
}

func hashes(n int) []kvcache.BlockHash {
	out := make([]kvcache.BlockHash, n)
	for i := range out {
		out[i] = kvcache.BlockHash(i + 1)
	}
	return out
}
