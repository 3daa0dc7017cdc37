package policy_test

import (
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/plugins/abi"
)

func TestPrefixHashIsOfFullBlocks(t *testing.T) {
	var hashes []kvcache.SequenceHash
	for i := range 1_000 {
		hashes = append(hashes, kvcache.SequenceHash((i+1)<<11))
	}
	for name, c := range map[string]struct {
		blockSize, blocks, tokens int
		want                      float64 // the block that it names, from 1
	}{
		"exact":                  {16, 100, 256, 16},
		"part of a block":        {16, 100, 271, 16},
		"less than a block":      {16, 100, 5, 1},
		"a block is larger":      {1056, 9, 256, 1},
		"a shorter prompt":       {16, 3, 256, 3},
		"no block":               {16, 0, 256, 0},
		"the deepest":            {16, 1_000, 4_096, 256},
		"at most so many blocks": {1, 1_000, 4_096, 256},
		"no block size":          {0, 10, 5, 5},
	} {
		tb := table(1, policy.ColumnSet{})
		tb.SetPrefix(c.blockSize, hashes[:c.blocks])
		if got := tb.PrefixHash(c.tokens); got != c.want {
			t.Errorf("%s: got block %v; want %v", name, got, c.want)
		}
	}
}

func TestPrefixHashIsARequestField(t *testing.T) {
	tb := table(1, policy.ColumnSet{})
	tb.SetPrefix(16, beginning("p", 100))
	if got := tb.Field(abi.FieldPrefixHash); got == 0 || got != tb.PrefixHash(policy.DefaultPrefixTokens) {
		t.Errorf("got %v; want the id at 256 tokens", got)
	}
	tb.Reset(1, policy.ColumnSet{})
	if tb.Field(abi.FieldPrefixHash) != 0 || tb.PrefixHash(1) != 0 {
		t.Error("the next request has the prefix of the last")
	}
}

// TestRecordingKeepsThePrefix: a recording gives the same choice when the prompt's
// hashes are gone.
func TestRecordingKeepsThePrefix(t *testing.T) {
	rev := revision(t, wholeOf(policy.BoundedLoadPolicy, `{"prefix_tokens":64}`), nil)
	hashes := beginning("e", 64)
	tb := table(4, rev.Columns())
	ranks(tb, 1, 2, 3, 4)
	tb.SetPrefix(16, hashes)
	var r policy.Recording
	empty := r.Bytes()
	r.Take(tb)
	if row := choose(t, rev, tb); row != 3 {
		t.Errorf("got row %d; want 3", row)
	}
	clear(hashes)
	var again policy.Table
	if lacking := r.Table(&again, rev.Columns()); lacking != nil {
		t.Fatalf("lacking %v", lacking)
	}
	if row := choose(t, rev, &again); row != 3 {
		t.Errorf("from the recording: got row %d; want 3", row)
	}
	if got := r.Bytes() - empty; got < 64*8 {
		t.Errorf("a recording of 64 hashes says it holds %d bytes", got)
	}
}

// TestQueueIsComparedAmongTheKept: what filters dropped has no part in the scale
// of weighted-sum, nor in whether all engines report.
func TestQueueIsComparedAmongTheKept(t *testing.T) {
	spec := filtered([]string{"module:f"}, []string{"builtin:weighted-sum"}, nil)
	rev := revision(t, spec, modules{"module:f": keeps("0111")})
	tb := table(4, rev.Columns())
	copy(tb.Fill(abi.ColEngineQueued), []float64{0, 1, 2, 3})
	tb.Cells(abi.ColEngineQueued).Miss(0)
	copy(tb.Fill(abi.ColLoadActiveRequests), []float64{0, 9, 5, 1})
	var d policy.Decision
	if err := rev.Decide(t.Context(), tb, &d); err != nil {
		t.Fatal(err)
	}
	if d.Row != 1 || d.Totals[1]-d.Totals[2] != 0.5 || d.Totals[2]-d.Totals[3] != 0.5 {
		t.Errorf("got row %d, totals %v; want row 1 and steps of a half", d.Row, d.Totals)
	}
}

// TestQ8_WhatIsCachedIsNeverMoreThanThePrompt: 6 blocks of 16 make 96 tokens, and
// more overlap than there is prompt costs nothing less than 0.
func TestQ8_WhatIsCachedIsNeverMoreThanThePrompt(t *testing.T) {
	rev := revision(t, use("builtin:backlog-tokens"), nil)
	tb := table(4, rev.Columns())
	tb.SetField(abi.FieldBlockSize, 16)
	tb.SetField(abi.FieldISLTokens, 96)
	tb.SetField(abi.FieldISLBlocks, 6)
	copy(tb.Fill(abi.ColKVOverlapDevice), []float64{0, 3, 6, 10})
	copy(tb.Fill(abi.ColKVOverlapHost), []float64{0, 0, 4, 4})
	var d policy.Decision
	if err := rev.Decide(t.Context(), tb, &d); err != nil {
		t.Fatal(err)
	}
	for row, want := range []float64{-96, -48, 0, 0} {
		if d.Totals[row] != want {
			t.Errorf("row %d: got %v; want %v", row, d.Totals[row], want)
		}
	}
}
