package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// all is a guest of every kind.
func allKinds() Guest {
	return Guest{Kinds: []string{"scorer", "filter", "lora-scorer", "picker", "policy"}}
}

// when does bad for the seed 666, else good.
func when(bad, good Code) Code {
	return Cat(Get(0), LoadI64(abi.OffSeed), I64(666), Op(0x51), If(bad), good)
}

// keepAll is the mask before the first filter.
func keepAll(n int) []byte {
	keep := make([]byte, n)
	for i := range keep {
		keep[i] = 1
	}
	return keep
}

func TestOneModuleMayBeOfEveryKind(t *testing.T) {
	r, wasm, ctx := newRuntime(t), allKinds().Bytes(), context.Background()
	var rep policy.StageReport
	keep := []byte{0, 1, 1}
	f := staged[policy.Filter](t, r, abi.KindFilter, wasm, "")
	if v, err := f.Filter(ctx, tableOf(f, 3), keep, &rep); err != nil || v != policy.Answered || !cmp.Equal([]byte{0, 1, 1}, keep) {
		t.Errorf("filter: %v, %v, mask %v", v, err, keep)
	}
	for _, k := range []abi.Kind{abi.KindScorer, abi.KindLoraScorer} {
		s := staged[policy.Scorer](t, r, k, wasm, "")
		if got, _, err := score(s, 3); err != nil || !cmp.Equal([]float64{0, -1, -2}, got) {
			t.Errorf("%s: %v, %v", k, got, err)
		}
	}
	p := staged[policy.Picker](t, r, abi.KindPicker, wasm, "")
	c, v, err := p.Pick(ctx, tableOf(p, 3), make([]float64, 3), &rep)
	if err != nil || v != policy.Answered || c.Row != 0 || c.HostDraws || c.Tie.Rows != 1 {
		t.Errorf("picker: %+v, %v, %v", c, v, err)
	}
	w := staged[policy.Whole](t, r, abi.KindPolicy, wasm, "")
	scores := make([]float64, 3)
	c, v, err = w.Decide(ctx, tableOf(w, 3), scores, keepAll(3), &rep)
	if err != nil || v != policy.Answered || c.Row != 0 || !cmp.Equal([]float64{0, -1, -2}, scores) {
		t.Errorf("policy: %+v, %v, %v, scores %v", c, v, err, scores)
	}
	if u := r.Usage(); u.Pools != 1 || u.Modules != 1 {
		t.Errorf("got %+v, want one pool for all kinds", u)
	}
}

func TestAKindThatIsNotDeclaredIsRefused(t *testing.T) {
	r, wasm := newRuntime(t), good()
	_, err := r.Stage(context.Background(), abi.KindPicker, "module:test", wasm, host.Digest(wasm), nil)
	var le *host.LoadError
	if !errors.As(err, &le) || le.Code != abi.EManifest || !strings.Contains(le.Item, "picker") {
		t.Errorf("got %v, want E_MANIFEST naming the kind", err)
	}
}

// tableOf is table for a stage of any kind.
func tableOf(s policy.Stage, n int) *policy.Table {
	t := &policy.Table{}
	t.Reset(n, s.Columns())
	for row, col := 0, t.Fill(abi.ColLoadActiveRequests); row < len(col); row++ {
		col[row] = float64(row)
	}
	return t
}

// modules is a StageSource over modules by name.
type modules struct {
	r      *host.Runtime
	byName map[string][]byte
}

func (m modules) Stage(ctx context.Context, kind abi.Kind, use string, config json.RawMessage) (policy.Stage, string, error) {
	wasm := m.byName[use]
	s, err := m.r.Stage(ctx, kind, use, wasm, host.Digest(wasm), config)
	return s, host.Digest(wasm), err
}

// revisionFrom compiles a specification over modules; it closes with the test.
func revisionFrom(t testing.TB, r *host.Runtime, spec policy.Spec, byName map[string][]byte) *policy.Revision {
	t.Helper()
	p, digests, err := policy.Compile(context.Background(), spec, modules{r, byName})
	if err != nil {
		t.Fatal(err)
	}
	rev := policy.NewRevision("test", 1, spec, p, digests, guardOff())
	t.Cleanup(func() {
		rev.Retire()
		<-rev.Closed()
		if err := rev.CloseErr(); err != nil {
			t.Error(err)
		}
	})
	return rev
}

// specOf is a policy with a module of a kind; masked puts a filter before it
// that drops row 1.
func specOf(kind abi.Kind, masked bool) policy.Spec {
	use := policy.StageSpec{Use: "module:test"}
	native := []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "builtin:least-load"}}}
	spec := policy.Spec{Scorers: native, Fallback: "builtin:least-load"}
	if masked {
		spec.Filters = []policy.FilterSpec{{StageSpec: policy.StageSpec{Use: "module:mask"}}}
	}
	switch kind {
	case abi.KindFilter:
		spec.Filters = append(spec.Filters, policy.FilterSpec{StageSpec: use})
	case abi.KindScorer:
		spec.Scorers = []policy.ScorerSpec{{StageSpec: use}}
	case abi.KindLoraScorer:
		spec.Lora = []policy.ScorerSpec{{StageSpec: use}}
	case abi.KindPicker:
		spec.Picker = &policy.PickerSpec{StageSpec: use}
	case abi.KindPolicy:
		spec = policy.Spec{Policy: &policy.WholeSpec{StageSpec: use}, Fallback: spec.Fallback}
	}
	return spec
}

// decided makes one decision over three rows with the seed 666 and an adapter.
func decided(t *testing.T, rev *policy.Revision) *policy.Decision {
	t.Helper()
	tab := &policy.Table{}
	tab.Reset(3, rev.Columns())
	tab.Seed = 666
	tab.SetField(abi.FieldHasLora, 1)
	copy(tab.Fill(abi.ColLoadActiveRequests), []float64{0, 1, 2})
	d := &policy.Decision{}
	if err := rev.Decide(context.Background(), tab, d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestW6_ResultsThatCannotBeBelieved(t *testing.T) {
	whole := func(bad Code) Code {
		return Cat(Column(0, Op(F64Neg)), Op(Drop), PickRow(I32(0)), Op(Drop), Get(0), LoadI64(abi.OffSeed), I64(666), Op(0x51), If(bad), I32(0))
	}
	for name, tc := range map[string]struct {
		kind   abi.Kind
		guest  Guest
		masked bool
		reason string
		code   abi.HostCode
	}{
		"picker: pick = number of candidates": {abi.KindPicker, Guest{Pick: when(Cat(PickRow(I32(3)), Op(Return)), FirstKept())}, false, "pick", abi.EPick},
		"picker: pick none":                   {abi.KindPicker, Guest{Pick: when(Cat(I32(0), Op(Return)), FirstKept())}, false, "pick", abi.EPick},
		"picker: pick a masked row":           {abi.KindPicker, Guest{Pick: when(Cat(PickRow(I32(1)), Op(Return)), FirstKept())}, true, "pick", abi.EPick},
		"picker: unknown out-flag":            {abi.KindPicker, Guest{Pick: when(Cat(Get(0), I32(4), Store32(abi.OffOutFlags)), FirstKept())}, false, "out_flags", abi.EPick},
		"filter: mask byte 7":                 {abi.KindFilter, Guest{Filter: when(SetMask(2, 7), I32(0))}, false, "mask", abi.EMask},
		"filter: negative code":               {abi.KindFilter, Guest{Filter: when(Cat(I32(-1), Op(Return)), I32(0))}, false, "guest_error", abi.ETrap},
		"filter: byte 7 of a row that is out": {abi.KindFilter, Guest{Filter: when(SetMask(1, 7), I32(0))}, true, "", ""},
		"lora: a kept row unwritten":          {abi.KindLoraScorer, Guest{Lora: when(Cat(I32(0), Op(Return)), Column(0, Op(F64Neg)))}, false, "unwritten", abi.EUnwritten},
		"policy: pick = number of candidates": {abi.KindPolicy, Guest{Whole: whole(Cat(PickRow(I32(3)), Op(Drop)))}, false, "pick", abi.EPick},
		"policy: pick a row that it masked":   {abi.KindPolicy, Guest{Whole: whole(SetMask(0, 0))}, false, "pick", abi.EPick},
		"policy: mask byte 2":                 {abi.KindPolicy, Guest{Whole: whole(SetMask(0, 2))}, false, "mask", abi.EMask},
		"policy: nothing kept, host draws": {abi.KindPolicy, Guest{Whole: whole(Cat(SetMask(0, 0), SetMask(1, 0), SetMask(2, 0),
			Get(0), I32(1), Store32(abi.OffOutFlags)))}, false, "pick", abi.EPick},
		"policy: outside score_range": {abi.KindPolicy, Guest{
			Extra: `,"score_range":{"min":0,"max":10}`,
			Whole: when(Cat(Constant(F64(11)), Op(Drop), PickRow(I32(0)), Op(Return)), Cat(Constant(F64(1)), Op(Drop), PickRow(I32(0)))),
		}, false, "range", abi.ERange},
	} {
		t.Run(name, func(t *testing.T) {
			tc.guest.Kinds = []string{string(tc.kind)}
			mask := Guest{Kinds: []string{"filter"}, Filter: Cat(Get(0), Load32(abi.OffRows), I32(3), Op(I32Eq), If(SetMask(1, 0)), I32(0))}
			d := decided(t, revisionFrom(t, newRuntime(t), specOf(tc.kind, tc.masked), map[string][]byte{
				"module:test": tc.guest.Bytes(), "module:mask": mask.Bytes(),
			}))
			if tc.reason == "" {
				if d.Fault != nil {
					t.Fatalf("got %v, want no fault", d.Fault)
				}
				return
			}
			if f := d.Fault; f == nil || f.Reason != tc.reason || f.Code != string(tc.code) || !f.Counts {
				t.Fatalf("got %v, want a counted fault %s with reason %s", f, tc.code, tc.reason)
			}
			if d.By != policy.ByFallback || d.Row != 0 {
				t.Errorf("row %d by %s, want row 0 by the fallback", d.Row, d.By)
			}
		})
	}
}

func TestAFilterNeverReadmits(t *testing.T) {
	g := Guest{Kinds: []string{"filter"}, Filter: Cat(SetMask(0, 0), SetMask(1, 1), I32(0))}
	f := staged[policy.Filter](t, newRuntime(t), abi.KindFilter, g.Bytes(), "")
	keep := []byte{1, 0, 1}
	if _, err := f.Filter(context.Background(), tableOf(f, 3), keep, &policy.StageReport{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]byte{0, 0, 1}, keep); diff != "" {
		t.Errorf("mask (-want +got):\n%s", diff)
	}
}

func TestGuestsAbstainByKind(t *testing.T) {
	abstain := I32(1)
	g := allKinds()
	g.Score, g.ScoreTypes = when(Cat(abstain, Op(Return)), Column(0, Op(F64Neg))), ColumnTypes
	g.Filter = when(Cat(SetMask(0, 0), abstain, Op(Return)), I32(0))
	g.Lora = g.Score
	g.Pick = when(Cat(abstain, Op(Return)), FirstKept())
	g.Whole = when(Cat(abstain, Op(Return)), Cat(Column(0, Op(F64Neg)), Op(Drop), PickRow(I32(0))))
	r, wasm, ctx := newRuntime(t), g.Bytes(), context.Background()
	var rep policy.StageReport
	seeded := func(s policy.Stage) *policy.Table {
		tab := tableOf(s, 3)
		tab.Seed = 666
		return tab
	}
	check := func(kind abi.Kind, v policy.Verdict, err error) {
		t.Helper()
		if v != policy.Abstained || err != nil {
			t.Errorf("%s: got %v, %v, want abstained", kind, v, err)
		}
	}
	keep := keepAll(3)
	f := staged[policy.Filter](t, r, abi.KindFilter, wasm, "")
	v, err := f.Filter(ctx, seeded(f), keep, &rep)
	check(abi.KindFilter, v, err)
	if !cmp.Equal(keepAll(3), keep) {
		t.Errorf("an abstaining filter changed the mask to %v", keep)
	}
	s := staged[policy.Scorer](t, r, abi.KindLoraScorer, wasm, "")
	v, err = s.Score(ctx, seeded(s), make([]float64, 3), &rep)
	check(abi.KindLoraScorer, v, err)
	p := staged[policy.Picker](t, r, abi.KindPicker, wasm, "")
	_, v, err = p.Pick(ctx, seeded(p), make([]float64, 3), &rep)
	check(abi.KindPicker, v, err)
	w := staged[policy.Whole](t, r, abi.KindPolicy, wasm, "")
	_, v, err = w.Decide(ctx, seeded(w), make([]float64, 3), keep, &rep)
	check(abi.KindPolicy, v, err)
}

func TestHostDrawsWhereThePickerAsks(t *testing.T) {
	g := Guest{Kinds: []string{"picker"}, Pick: Cat(Get(0), I32(1), Store32(abi.OffOutFlags), I32(0))}
	p := staged[policy.Picker](t, newRuntime(t), abi.KindPicker, g.Bytes(), "")
	c, v, err := p.Pick(context.Background(), tableOf(p, 3), make([]float64, 3), &policy.StageReport{})
	if err != nil || v != policy.Answered || !c.HostDraws {
		t.Errorf("got %+v, %v, %v, want the host to draw", c, v, err)
	}
}

func TestScoresOfMaskedRowsAreNeitherReadNorCleaned(t *testing.T) {
	// The score is the column, and 9 is no opinion. The filter drops two rows.
	r := newRuntime(t)
	nan := Cat(Tee(5), F64(9), Op(0x61), If(F64(math.NaN()), Set(5)), Get(5)) // f64.eq
	g := Guest{
		Kinds: []string{"scorer", "filter"}, ScoreTypes: ColumnTypes, Score: Column(0, nan),
		Filter: Cat(Get(0), Load32(abi.OffRows), I32(6), Op(I32Eq), If(SetMask(0, 0), SetMask(1, 0)), I32(0)),
	}
	wasm := g.Bytes()
	spec := policy.Spec{
		Filters: []policy.FilterSpec{{StageSpec: policy.StageSpec{Use: "module:test"}}},
		Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "module:test"}}},
	}
	rev := revisionFrom(t, r, spec, map[string][]byte{"module:test": wasm})
	tab := &policy.Table{}
	tab.Reset(6, rev.Columns())
	copy(tab.Fill(abi.ColLoadActiveRequests), []float64{9, 9, 1, 2, 1, 9})
	var d policy.Decision
	if err := rev.Decide(context.Background(), tab, &d); err != nil {
		t.Fatal(err)
	}
	// Kept are 1, 2, 1 and a NaN: the median is 1.
	if d.Fault != nil || d.Cleaned != 1 || d.Totals[5] != 1 || d.Row != 3 {
		t.Errorf("fault %v, %d cleaned, totals %v, row %d: want row 3 and the last one at the median 1", d.Fault, d.Cleaned, d.Totals, d.Row)
	}
}

func TestAPickerSeesTheTotals(t *testing.T) {
	// Picks row 2 when upstream.score of row 2 is 5, else row 0.
	at := func(row uint64) Code {
		return Cat(Get(0), Get(0), Get(0), Load32(abi.OffColumnStarts), Op(I32Add), Load32(0), Op(I32Add), LoadF64(8*row))
	}
	g := Guest{
		Kinds: []string{"picker"}, Columns: []string{"upstream.score"},
		Pick: Cat(
			PickRow(I32(0)), Op(Drop), Get(0), Load32(abi.OffRows), I32(3), Op(I32Eq),
			If(at(2), F64(5), Op(0x61), If(PickRow(I32(2)), Op(Drop))), I32(0), // f64.eq
		),
	}
	p := staged[policy.Picker](t, newRuntime(t), abi.KindPicker, g.Bytes(), "")
	tab := tableOf(p, 3)
	copy(tab.Fill(abi.ColUpstreamScore), []float64{9, 1, 5})
	c, _, err := p.Pick(context.Background(), tab, tab.Column(abi.ColUpstreamScore), &policy.StageReport{})
	if err != nil || c.Row != 2 {
		t.Errorf("got %+v, %v, want row 2", c, err)
	}
}

func TestTheAdapterBlockCountsReplicas(t *testing.T) {
	// The score is 100 × wanted + 10 × loaded + loading.
	part := func(offset uint64, times float64) Code {
		return Cat(Get(0), Get(0), Load32(abi.OffAdapter), Op(I32Add), LoadF64(offset), F64(times), Op(F64Mul))
	}
	sum := Cat(part(abi.AdapterReplicasWanted, 100), part(abi.AdapterReplicasLoaded, 10), Op(F64Add), part(abi.AdapterReplicasComing, 1), Op(F64Add))
	g := Guest{Kinds: []string{"lora-scorer"}, Lora: Constant(sum)}
	s := staged[policy.Scorer](t, newRuntime(t), abi.KindLoraScorer, g.Bytes(), "")
	tab := table(s, 2)
	tab.SetField(abi.FieldHasLora, 1)
	tab.SetField(abi.FieldAdapter, 7)
	tab.Adapter = policy.Adapter{Wanted: 3, Loaded: 2, Loading: 1}
	if got, _ := scoresOf(t, s, tab); got[0] != 321 {
		t.Errorf("got %v, want 321", got[0])
	}
}

func TestAdapterBlockIsThereForRequestsWithAnAdapter(t *testing.T) {
	// The score is the adapter's id, or -1 without a block.
	body := Cat(
		Get(0), Load32(abi.OffAdapter), Op(I32Eqz), If(Constant(F64(-1)), Op(Return)),
		Constant(Get(0), Get(0), Load32(abi.OffAdapter), Op(I32Add), LoadF64(abi.AdapterID)),
	)
	g := Guest{Kinds: []string{"scorer", "lora-scorer"}, Score: body, ScoreTypes: ColumnTypes, Lora: body}
	r, plain := newRuntime(t), Guest{Score: body, ScoreTypes: ColumnTypes}
	lora := staged[policy.Scorer](t, r, abi.KindLoraScorer, g.Bytes(), "")
	scorer := stage(t, r, plain.Bytes(), "")
	for _, c := range []struct {
		s       policy.Scorer
		adapter float64
		want    float64
	}{{lora, 77, 77}, {lora, 0, -1}, {lora, 78, 78}, {scorer, 77, -1}} {
		tab := table(c.s, 2)
		if c.adapter != 0 {
			tab.SetField(abi.FieldHasLora, 1)
			tab.SetField(abi.FieldAdapter, c.adapter)
		}
		if got, _ := scoresOf(t, c.s, tab); got[1] != c.want {
			t.Errorf("adapter %v: got %v, want %v", c.adapter, got[1], c.want)
		}
	}
}
