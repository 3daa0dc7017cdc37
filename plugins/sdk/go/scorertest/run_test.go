package scorertest_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/plugins/sdk/go/scorer"
	"github.com/routerd/routerd/plugins/sdk/go/scorertest"
)

// sum adds two columns and a field, and shows the rest of a batch in the last
// row.
func sum() scorer.Plugin {
	return scorer.Plugin{
		Columns: []string{"kv.usage", "engine.queued"},
		Fields:  []string{"priority"},
		Score: func(b *scorer.Batch) error {
			usage, queued, mask, scores := b.Column(0), b.Column(1), b.Mask(), b.Scores()
			for i := range b.Len() {
				if !mask.Kept(i) {
					continue
				}
				scores.Set(i, usage.At(i)+queued.At(i)+b.Field(0))
			}
			return nil
		},
	}
}

func TestRunReadsColumnsFieldsAndMask(t *testing.T) {
	got, err := scorertest.Run(sum(), scorertest.Batch{
		Columns: map[string][]float64{"kv.usage": {1, 2, 3}, "engine.queued": {10, 20, 30}},
		Fields:  map[string]float64{"priority": 100},
		Mask:    []bool{true, false, true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]float64{111, 0, 133}, got); d != "" {
		t.Error(d)
	}
}

func TestAbsentColumnReadsZero(t *testing.T) {
	p := sum()
	var has []bool
	score := p.Score
	p.Score = func(b *scorer.Batch) error {
		has = []bool{b.Has(0), b.Has(1)}
		return score(b)
	}
	got, err := scorertest.Run(p, scorertest.Batch{Columns: map[string][]float64{"kv.usage": {1, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]float64{1, 2}, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]bool{true, false}, has); d != "" {
		t.Error(d)
	}
}

func TestRunHandsOverSeedFlagsAndRowIDs(t *testing.T) {
	p := scorer.Plugin{Columns: []string{"kv.usage"}, Score: func(b *scorer.Batch) error {
		if b.Seed() != 77 || b.Flags() != scorer.Pinned|scorer.SessionBound || b.RowID(1) != 1 || b.Len() != 2 {
			t.Errorf("seed %d, flags %d, row id %d, len %d", b.Seed(), b.Flags(), b.RowID(1), b.Len())
		}
		return scorer.ErrAbstain
	}}
	_, err := scorertest.Run(p, scorertest.Batch{
		Columns: map[string][]float64{"kv.usage": {1, 2}}, Seed: 77, Flags: scorer.Pinned | scorer.SessionBound,
	})
	if !errors.Is(err, scorer.ErrAbstain) {
		t.Errorf("got %v", err)
	}
}

func TestRunRefusesWhatTheHostNeverSends(t *testing.T) {
	for name, b := range map[string]scorertest.Batch{
		"no rows":            {},
		"other column":       {Columns: map[string][]float64{"kv.total_blocks": {1}}},
		"columns of two":     {Columns: map[string][]float64{"kv.usage": {1}, "engine.queued": {1, 2}}},
		"short mask":         {Columns: map[string][]float64{"kv.usage": {1}}, Mask: []bool{true, true}},
		"undeclared request": {Columns: map[string][]float64{"kv.usage": {1}}, Fields: map[string]float64{"model": 1}},
	} {
		if _, err := scorertest.Run(sum(), b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestUnwrittenRowIsAnError(t *testing.T) {
	p := scorer.Plugin{Columns: []string{"kv.usage"}, Score: func(b *scorer.Batch) error {
		b.Scores().Set(0, math.NaN()) // no opinion is written, not unwritten
		return nil
	}}
	if _, err := scorertest.Run(p, scorertest.Batch{Columns: map[string][]float64{"kv.usage": {1}}}); err != nil {
		t.Errorf("NaN: %v", err)
	}
	_, err := scorertest.Run(p, scorertest.Batch{Columns: map[string][]float64{"kv.usage": {1, 2}}})
	if err == nil || !strings.Contains(err.Error(), "row 1 of 2") {
		t.Errorf("got %v", err)
	}
}

func TestAccessOutOfRangePanicsNatively(t *testing.T) {
	for name, touch := range map[string]func(*scorer.Batch){
		"column":        func(b *scorer.Batch) { b.Column(1) },
		"row":           func(b *scorer.Batch) { b.Column(0).At(2) },
		"negative row":  func(b *scorer.Batch) { b.Column(0).At(-1) },
		"score":         func(b *scorer.Batch) { b.Scores().Set(2, 1) },
		"score read":    func(b *scorer.Batch) { b.Scores().At(2) },
		"mask":          func(b *scorer.Batch) { b.Mask().Kept(2) },
		"request field": func(b *scorer.Batch) { b.Field(0) },
		"row id":        func(b *scorer.Batch) { b.RowID(2) },
	} {
		t.Run(name, func(t *testing.T) {
			p := scorer.Plugin{Columns: []string{"kv.usage"}, Score: func(b *scorer.Batch) error {
				if !panics(func() { touch(b) }) {
					t.Error("no panic")
				}
				return scorer.ErrAbstain
			}}
			if _, err := scorertest.Run(p, scorertest.Batch{Columns: map[string][]float64{"kv.usage": {1, 2}}}); !errors.Is(err, scorer.ErrAbstain) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestScoresReadWhatWasSet(t *testing.T) {
	p := scorer.Plugin{Columns: []string{"kv.usage"}, Score: func(b *scorer.Batch) error {
		usage, out := b.Column(0), b.Scores()
		for i := range b.Len() {
			out.Set(i, usage.At(i))
		}
		for i := range b.Len() {
			out.Set(i, out.At(i)+1)
		}
		return nil
	}}
	got, err := scorertest.Run(p, scorertest.Batch{Columns: map[string][]float64{"kv.usage": {1, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]float64{2, 3}, got); d != "" {
		t.Error(d)
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
