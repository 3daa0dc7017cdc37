package host_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// Imports of a guest that tells everything, by index.
const (
	addMetric = iota
	setMetric
	putTrace
	sayLine
)

// telling is a scorer that does say, in each call, before it answers. It has the
// counter served, the gauges load and late, and the traces best and spread.
func telling(say ...Code) Guest {
	return Guest{
		Imports: [][4]string{
			{"routerd_v1", "metric_add", "id", ""},
			{"routerd_v1", "metric_set", "id", ""},
			{"routerd_v1", "trace", "id", ""},
			{"routerd_v1", "log", "iii", ""},
		},
		Extra: `,"imports":["log","metric_add","metric_set","trace"],"traces":["best","spread"],"metrics":[` +
			`{"name":"served","type":"counter","help":"Calls."},{"name":"load","type":"gauge"},{"name":"late","type":"gauge"}]`,
		ScoreTypes: ColumnTypes, Score: Cat(Cat(say...), Column(0, Op(F64Neg))),
		// The text of lines lies where the allocator would start.
		Alloc: Cat(I32(8192), Set(1), Get(0), I32(128), Op(0x4a), If(I32(65_536), Set(1)), Get(1)),
		After: func(m *Module) { m.Data(512, []byte("hello")) },
	}
}

func tell(f uint64, id int32, v float64) Code { return Cat(I32(id), F64(v), Call(f)) }

func hello() Code { return Cat(I32(1), I32(512), I32(5), Call(sayLine)) }

// told is a runtime whose log and metrics are the test's.
func told(t *testing.T) (*host.Runtime, *prometheus.Registry, *lines) {
	t.Helper()
	out, reg := &lines{}, prometheus.NewRegistry()
	rt, err := host.New(host.DefaultConfig(), slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})), reg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return rt, reg, out
}

// published are the values of what guests publish, without the digest.
func published(t *testing.T, reg *prometheus.Registry, plugin string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for name, v := range values(t, reg) {
		if head, labels, ok := strings.Cut(name, "{"); ok && strings.HasSuffix(labels, ","+plugin+"}") {
			out[strings.TrimPrefix(head, "routerd_plugin_")] = v
		}
	}
	return out
}

func TestNothingIsSeenOutsideBeforeTheCommit(t *testing.T) {
	rt, reg, out := told(t)
	s := stage(t, rt, telling(hello(), tell(addMetric, 0, 2), tell(setMetric, 1, 7), tell(addMetric, 1, 1), tell(addMetric, 2, 3)).Bytes(), "")
	call := func(quiet bool) policy.Effects {
		var r policy.StageReport
		tab := table(s, 2)
		tab.Quiet = quiet
		if _, err := s.Score(context.Background(), tab, make([]float64, 2), &r); err != nil {
			t.Fatal(err)
		}
		return r.Effects
	}
	none := map[string]float64{"test_served_total": 0, "test_load": 0, "test_late": 0}
	first, _ := call(false), call(false) // the second decision is made again
	if e := call(true); e != nil {
		t.Error("a quiet call has effects")
	}
	if got := published(t, reg, "test"); !cmp.Equal(none, got) || len(out.all()) != 0 {
		t.Errorf("before the commit: got %v and %q, want zeros and no line", got, out.all())
	}
	first.Publish()
	want := map[string]float64{"test_served_total": 2, "test_load": 8, "test_late": 3}
	if diff := cmp.Diff(want, published(t, reg, "test")); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	call(false).Publish()
	want = map[string]float64{"test_served_total": 4, "test_load": 8, "test_late": 6}
	if diff := cmp.Diff(want, published(t, reg, "test")); diff != "" {
		t.Errorf("metrics after another (-want +got):\n%s", diff)
	}
	if n := len(out.all()); n != 2 {
		t.Errorf("%d lines, want 2", n)
	}
}

func TestASilentGuestHasNoEffects(t *testing.T) {
	_, r, err := score(stage(t, newRuntime(t), good(), ""), 2)
	if err != nil || r.Effects != nil || r.Traces != nil {
		t.Errorf("got %+v, %v, want none", r, err)
	}
}

func TestTracesReachTheReportUpToEight(t *testing.T) {
	say := Cat(tell(putTrace, 1, math.Inf(1)), tell(putTrace, 1, 0.5))
	for range 10 {
		say = Cat(say, tell(putTrace, 0, 3))
	}
	s := stage(t, newRuntime(t), telling(say).Bytes(), "")
	tab := table(s, 2)
	tab.Quiet = true // traces are the decision's own, not seen outside
	var r policy.StageReport
	if _, err := s.Score(context.Background(), tab, make([]float64, 2), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Traces) != 8 || r.Effects != nil {
		t.Fatalf("got %v and effects %v, want 8 traces and none", r.Traces, r.Effects)
	}
	if diff := cmp.Diff([]policy.Trace{{Name: "spread", Value: 0.5}, {Name: "best", Value: 3}}, r.Traces[:2]); diff != "" {
		t.Errorf("traces (-want +got):\n%s", diff)
	}
}

func TestNumbersOutsideTheManifestTrap(t *testing.T) {
	for name, bad := range map[string]Code{
		"metric_add 3":            tell(addMetric, 3, 1),
		"metric_add -1":           tell(addMetric, -1, 1),
		"metric_set of a counter": tell(setMetric, 0, 1),
		"trace 2":                 tell(putTrace, 2, 1),
		"trace -1":                tell(putTrace, -1, 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := stage(t, newRuntime(t), telling(Get(0), LoadI64(abi.OffSeed), I64(666), Op(0x51), If(bad)).Bytes(), "")
			_, err := s.Score(context.Background(), badTable(s, 2), make([]float64, 2), &policy.StageReport{})
			var f *policy.Fault
			if !errors.As(err, &f) || f.Reason != "bad_import_argument" || f.Code != string(abi.ETrap) {
				t.Errorf("got %v, want a trap for the import's argument", err)
			}
		})
	}
}

func TestValuesThatNoMetricTakesAreDropped(t *testing.T) {
	rt, reg, _ := told(t)
	s := stage(t, rt, telling(
		tell(addMetric, 0, -5), tell(addMetric, 0, math.NaN()), tell(addMetric, 0, 1),
		tell(setMetric, 1, math.Inf(-1)), tell(addMetric, 2, 1.7e308), tell(addMetric, 2, 1.7e308),
	).Bytes(), "")
	if _, _, err := score(s, 2); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"test_served_total": 1, "test_load": 0, "test_late": 0}, published(t, reg, "test")); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestMetricsGoWithTheModulesLastStage(t *testing.T) {
	rt, reg, _ := told(t)
	wasm := telling(tell(addMetric, 0, 1)).Bytes()
	var open []policy.Scorer
	for range 2 {
		s, err := loaded(t.Context(), rt, "module:test", wasm)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	for i, s := range open {
		if got := published(t, reg, "test"); len(got) != 3 {
			t.Errorf("with %d stages: got %v, want three metrics", len(open)-i, got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := published(t, reg, "test"); len(got) != 0 {
		t.Errorf("after the last stage: got %v", got)
	}
}

func TestModulesOfOneNamePublishSideBySide(t *testing.T) {
	rt, reg, _ := told(t)
	older := telling(tell(addMetric, 0, 1))
	newer := telling(tell(addMetric, 0, 2))
	newer.Extra = strings.Replace(newer.Extra, "Calls.", "Other words.", 1)
	for _, g := range []Guest{older, newer} {
		if _, _, err := score(stage(t, rt, g.Bytes(), ""), 1); err != nil {
			t.Fatal(err)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []float64
	for _, f := range families {
		if f.GetName() == "routerd_plugin_test_served_total" {
			for _, m := range f.GetMetric() {
				got = append(got, m.GetCounter().GetValue())
			}
		}
	}
	if len(got) != 2 || got[0]+got[1] != 3 {
		t.Errorf("got %v, want a series for each version", got)
	}
}

func TestW9_OneCallsLinesAreBoundedAndCounted(t *testing.T) {
	// Logs and prints in a loop until the fuel of the largest budget is gone.
	g := manyLines(sparing(printing(Loop(
		write(), I32(1), I32(16_384), I32(512), Call(1), Br(0),
	))))
	g.Imports = append(g.Imports, [4]string{"routerd_v1", "log", "iii", ""})
	g.Extra = `,"imports":["log"],"limits":{"fuel_base":1000000000}`
	rt, reg, out := told(t)
	l := rt.Limits()
	l.FuelCap, l.CallDeadline = 1_000_000_000, 10_000_000_000
	rt.SetLimits(l)
	s := stage(t, rt, g.Bytes(), "")
	var r policy.StageReport
	_, err := s.Score(context.Background(), badTable(s, 1), make([]float64, 1), &r)
	var f *policy.Fault
	if !errors.As(err, &f) || f.Code != string(abi.EFuel) || r.Effects == nil {
		t.Fatalf("got %v, want the call ended, and what was said", err)
	}
	r.Effects.Publish()
	got := out.all()
	size := 0
	for _, l := range got {
		size += len(l)
	}
	if len(got) != 40 || size > 64<<10 {
		t.Errorf("%d lines of %d bytes, want 40 of at most 64 KiB", len(got), size)
	}
	dropped := values(t, reg)["routerd_plugin_log_dropped_total{test}"]
	t.Logf("%v lines dropped", dropped)
	if dropped < 1_000_000 {
		t.Errorf("%v lines dropped, want a million or more", dropped)
	}
	if _, _, err := score(s, 1); err != nil {
		t.Errorf("the next call: %v", err)
	}
}
