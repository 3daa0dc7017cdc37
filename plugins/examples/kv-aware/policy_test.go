package main

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
	"github.com/routerd/routerd/plugins/sdk/go/scorertest"
)

// defaults are the config's defaults with a block size and a prompt.
func defaults() map[string]float64 {
	return map[string]float64{
		"isl_blocks": 10, "block_size": 16,
		"config.prefill_load_scale": 1, "config.overlap_credit": 1, "config.credit_decay": 0,
		"config.active_request_weight": 0, "config.host_weight": 0.75, "config.disk_weight": 0.25,
		"config.shared_weight": 0.5,
	}
}

// row is one candidate: device, host, disk, shared blocks, prefill tokens,
// potential prefill tokens, potential decode blocks, active requests,
// preference.
type row [9]float64

func batch(fields map[string]float64, rows ...row) scorertest.Batch {
	b := scorertest.Batch{Columns: map[string][]float64{}, Fields: fields}
	for i, name := range columns() {
		for _, r := range rows {
			b.Columns[name] = append(b.Columns[name], r[i])
		}
	}
	return b
}

func idle(device float64) row { return row{device, 0, 0, 0, 0, 160, 10, 0, 1} }

func TestPluginIsWhatItsManifestSays(t *testing.T) {
	manifest, err := os.ReadFile("manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	m := scorertest.Check(t, plugin(), manifest, batch(defaults(), idle(0), idle(1)))
	if m.Limits.MaxRows < 1024 || len(m.ConfigSchema) == 0 {
		t.Errorf("got %+v", m)
	}
}

func TestScoreByHand(t *testing.T) {
	with := func(field string, v float64) map[string]float64 {
		f := defaults()
		f[field] = v
		return f
	}
	for _, c := range []struct {
		name   string
		fields map[string]float64
		row    row
		want   float64
	}{
		{"nothing cached", defaults(), idle(0), -(10 + 10)},
		{"all cached", defaults(), idle(10), -10},
		{"more cached than prefill", defaults(), idle(99), -10},
		{"tiers", defaults(), row{2, 4, 4, 2, 0, 160, 10, 0, 1}, -(10 - 2 - 3 - 1 - 1 + 10)},
		{"active requests cost nothing by default", defaults(), row{0, 0, 0, 0, 0, 160, 10, 7, 1}, -20},
		{"active requests with a weight", with("config.active_request_weight", 2), row{0, 0, 0, 0, 0, 160, 10, 7, 1}, -34},
		{"prefill scale 0", with("config.prefill_load_scale", 0), idle(0), -10},
		{"credit 0 ignores the cache", with("config.overlap_credit", 0), idle(10), -20},
		{"preference", defaults(), row{0, 0, 0, 0, 0, 160, 10, 0, 0.5}, -10},
		{"decay of the least loaded is 1", with("config.credit_decay", 3), idle(4), -16},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := scorertest.Run(plugin(), batch(c.fields, c.row))
			if err != nil {
				t.Fatal(err)
			}
			if got[0] != c.want {
				t.Errorf("score %v, want %v", got[0], c.want)
			}
		})
	}
}

func TestDecayShrinksTheCreditOfTheBusier(t *testing.T) {
	f := defaults()
	f["config.credit_decay"] = 2
	// The second has 80 tokens, 5 blocks, more than the least loaded: its decay
	// is 1 / (1 + 2 × 5/10).
	got, err := scorertest.Run(plugin(), batch(f, idle(0), row{4, 0, 0, 0, 80, 240, 10, 0, 1}))
	if err != nil {
		t.Fatal(err)
	}
	if want := -(15.0 - 2 + 10); got[1] != want {
		t.Errorf("score %v, want %v", got[1], want)
	}
}

// written is the formula in the order that README.md states, one row at a time.
func written(f map[string]float64, r row, least float64) float64 {
	greater := func(a, b float64) float64 {
		if a > b {
			return a
		}
		return b
	}
	s, c, k := f["config.prefill_load_scale"], f["config.overlap_credit"], f["config.credit_decay"]
	w, h, d, m := f["config.active_request_weight"], f["config.host_weight"], f["config.disk_weight"], f["config.shared_weight"]
	block := f["block_size"]
	excess := greater(r[4]-least, 0) / block
	decay := 1 / (1 + float64(k*(excess/greater(f["isl_blocks"], 1))))
	credit := float64(float64(c*decay)*r[0]) + float64(h*r[1])
	credit += float64(d * r[2])
	credit += float64(m * r[3])
	pre := greater(r[5]/block-credit, 0)
	cost := float64(s*pre) + r[6]
	cost += float64(w * r[7])
	return -float64(cost * r[8])
}

// Where the quick form must see that it is not the formula.
func TestScoreIsTheFormulaAtTheEdges(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		name    string
		fields  map[string]float64
		waiting [2]float64
		prefill float64
	}{
		{"infinite wait", nil, [2]float64{0, inf}, 1600},
		{"wait is no number", nil, [2]float64{0, nan}, 1600},
		{"first wait is no number", nil, [2]float64{nan, 3}, 1600},
		{"first wait is no number, with decay", map[string]float64{"config.credit_decay": 1}, [2]float64{nan, 3}, 1600},
		{"difference overflows", nil, [2]float64{-math.MaxFloat64, math.MaxFloat64}, 1600},
		{"block size below 1 overflows", map[string]float64{"block_size": 0x1p-100}, [2]float64{0, 0x1p963}, 0x1p-90},
		{"negative zeroes", nil, [2]float64{0, math.Copysign(0, -1)}, 0},
		{"prefill near the greatest", nil, [2]float64{0, 1}, math.MaxFloat64},
		{"prefill whose double overflows", map[string]float64{"block_size": 1}, [2]float64{0, 1}, 1.7e308},
		{"prefill is no number", nil, [2]float64{0, 1}, nan},
		{"prefill is minus infinite", nil, [2]float64{0, 1}, -inf},
		{"least of all numbers", nil, [2]float64{0, 1}, 5e-324 * 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := defaults()
			maps.Copy(f, c.fields)
			for _, n := range []int{2, 4, 7} {
				var rows []row
				for i := range n {
					rows = append(rows, row{2, 0, 0, 0, c.waiting[min(i, 1)], c.prefill, 10, 0, 1})
				}
				holdsFormula(t, f, rows)
			}
		})
	}
}

func TestScoreHasTheBitsOfTheWrittenFormula(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	hostile := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1e308, math.MaxFloat64, 0x1p964, 0x1p963, 5e-324, -3}
	number := func() float64 {
		if rng.IntN(50) == 0 {
			return hostile[rng.IntN(len(hostile))]
		}
		return float64(rng.IntN(1<<20)) / 7
	}
	for round := range 200 {
		f := defaults()
		for name := range f {
			f[name] = float64(1+rng.IntN(40)) / 13
		}
		if round%2 == 0 {
			f["config.credit_decay"] = 0
		}
		rows := make([]row, 1+rng.IntN(70))
		for i := range rows {
			for j := range rows[i] {
				rows[i][j] = number()
			}
		}
		holdsFormula(t, f, rows)
	}
}

// Rows that a filter dropped are not the least loaded ones.
func TestTheLeastLoadIsThatOfKeptRows(t *testing.T) {
	f := defaults()
	f["config.credit_decay"] = 2
	b := batch(f, idle(0), row{4, 0, 0, 0, 80, 240, 10, 0, 1}, row{4, 0, 0, 0, 160, 240, 10, 0, 1}, idle(0))
	b.Mask = []bool{false, true, true, false}
	got, err := scorertest.Run(plugin(), b)
	if err != nil {
		t.Fatal(err)
	}
	// The second is the least loaded: no decay. The third has 80 tokens, 5
	// blocks, more: 1 / (1 + 2 × 5/10).
	if want := []float64{0, -(15.0 - 4 + 10), -(15.0 - 2 + 10), 0}; !slices.Equal(got, want) {
		t.Errorf("scores %v, want %v", got, want)
	}
}

// live is a row whose cached blocks do not cover its prefill, so that the decay
// tells.
func live(rng *rand.Rand) row {
	number := func(most int) float64 { return float64(rng.IntN(7*most)) / 7 }
	return row{number(40), number(9), number(9), number(9), number(4000), 1600 + number(4000), number(100), number(20), 1 / (1 + number(3))}
}

func TestScoreHasTheBitsOfTheWrittenFormulaBehindAFilter(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 200 {
		f := defaults()
		f["config.credit_decay"] = float64(1+rng.IntN(40)) / 13
		rows := make([]row, 1+rng.IntN(40))
		mask := make([]bool, len(rows))
		for i := range rows {
			rows[i], mask[i] = live(rng), rng.IntN(3) > 0
		}
		mask[rng.IntN(len(rows))] = true
		if round%10 == 0 { // so that the formula is done again
			rows[rng.IntN(len(rows))][rng.IntN(9)] = math.Inf(1)
		}
		holdsMasked(t, f, rows, mask)
	}
}

// filtered is the built-in twin behind a filter of keep.
func filtered(t *testing.T, keep []bool) *policy.Revision {
	t.Helper()
	spec, err := policy.ParseSpec([]byte(`{"filters":[{"use":"module:keep"}],"scorers":[{"use":"builtin:kv-aware","config":{"credit_decay":2}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if spec, err = spec.Normalised(); err != nil {
		t.Fatal(err)
	}
	p, digests, err := policy.Compile(t.Context(), spec, keeps(keep))
	if err != nil {
		t.Fatal(err)
	}
	rev := policy.NewRevision("test", 1, spec, p, digests)
	t.Cleanup(rev.Retire)
	return rev
}

// keeps is a filter that keeps these rows, and the source of it.
type keeps []bool

func (k keeps) Stage(context.Context, abi.Kind, string, json.RawMessage) (policy.Stage, string, error) {
	return k, "", nil
}

func (k keeps) Filter(_ context.Context, _ *policy.Table, keep []byte, _ *policy.StageReport) (policy.Verdict, error) {
	for i := range keep {
		if !k[i] {
			keep[i] = 0
		}
	}
	return policy.Answered, nil
}

func (keeps) Columns() policy.ColumnSet                                   { return policy.ColumnSet{} }
func (keeps) CheckOverrides(map[string]json.RawMessage) ([]string, error) { return nil, nil }
func (keeps) Close() error                                                { return nil }

func TestScoreHasTheBitsOfTheBuiltInTwinBehindAFilter(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	f := defaults()
	f["config.credit_decay"] = 2
	for range 100 {
		rows := make([]row, 2+rng.IntN(20))
		keep := make([]bool, len(rows))
		for i := range rows {
			rows[i], keep[i] = live(rng), rng.IntN(2) == 0
		}
		keep[rng.IntN(len(rows))] = true
		b := batch(f, rows...)
		b.Mask = keep
		got, err := scorertest.Run(plugin(), b)
		if err != nil {
			t.Fatal(err)
		}
		rev := filtered(t, keep)
		var table policy.Table
		table.Reset(len(rows), rev.Columns())
		table.SetField(abi.FieldISLBlocks, f["isl_blocks"])
		table.SetField(abi.FieldBlockSize, f["block_size"])
		for name, column := range b.Columns {
			copy(table.NamedCells(name).Fill(), column)
		}
		var d policy.Decision
		if err := rev.Decide(t.Context(), &table, &d); err != nil || d.Fault != nil {
			t.Fatal(err, d.Fault)
		}
		for i, want := range d.StageScores[0] {
			if keep[i] && math.Float64bits(got[i]+0) != math.Float64bits(want) { // −0 is 0, as the pipeline makes it
				t.Fatalf("row %d of %d, kept %v: %v, want %v", i, len(rows), keep, got[i], want)
			}
		}
	}
}

func holdsFormula(t *testing.T, f map[string]float64, rows []row) {
	t.Helper()
	holdsMasked(t, f, rows, nil)
}

// holdsMasked compares the scores of the rows that mask keeps with the formula;
// nil keeps all.
func holdsMasked(t *testing.T, f map[string]float64, rows []row, mask []bool) {
	t.Helper()
	kept := func(i int) bool { return len(mask) == 0 || mask[i] }
	least, found := 0.0, false
	for i, r := range rows {
		if kept(i) && (!found || r[4] < least) {
			least, found = r[4], true
		}
	}
	b := batch(f, rows...)
	b.Mask = mask
	got, err := scorertest.Run(plugin(), b)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rows {
		want := written(f, r, least)
		if kept(i) && math.Float64bits(got[i]) != math.Float64bits(want) && !(math.IsNaN(got[i]) && math.IsNaN(want)) {
			t.Fatalf("row %d of %d, %v: %v, want %v", i, len(rows), r, got[i], want)
		}
	}
}
