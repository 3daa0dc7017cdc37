package host_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
)

func TestMetricsTellCallsFaultsAndWhatIsHeld(t *testing.T) {
	reg := prometheus.NewRegistry()
	rt, err := host.New(host.DefaultConfig(), slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	}()
	wasm := hostileInACall()["unreachable"].guest.Bytes()
	s, err := loaded(context.Background(), rt, "module:test", wasm)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, _, err := score(s, 2); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = s.Score(context.Background(), badTable(s, 2), make([]float64, 2), &policy.StageReport{})
	_, _, _ = score(s, 1025)
	got := values(t, reg)
	if got["routerd_plugin_fuel_total{test}"] == 0 || got["routerd_plugin_memory_bytes"] == 0 {
		t.Errorf("fuel or memory is 0: %v", got)
	}
	want := map[string]float64{
		"routerd_plugin_calls_total{test}":              4,
		"routerd_plugin_faults_total{test,unreachable}": 1,
		"routerd_plugin_faults_total{test,capacity}":    1,
		"routerd_plugin_modules":                        1,
		"routerd_plugin_log_dropped_total{test}":        0,
	}
	for name, v := range want {
		if diff := cmp.Diff(v, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "no instance is left", func() bool { return values(t, reg)["routerd_plugin_instances"] == 0 })
}

// The series of a plugin are there while a stage of it may decide, whatever
// module of the name it runs.
func TestTheSeriesOfAPluginGoWithItsLastStage(t *testing.T) {
	rt, reg, _ := told(t)
	trapping := hostileInACall()["unreachable"].guest.Bytes()
	open := func(ctx context.Context, wasm []byte) policy.Scorer {
		t.Helper()
		s, err := loaded(ctx, rt, "module:test", wasm)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Score(context.Background(), badTable(s, 2), make([]float64, 2), &policy.StageReport{})
		return s
	}
	of := func() (names []string) {
		for name := range values(t, reg) {
			if strings.Contains(name, "{test") {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	check := func(when string, want ...string) {
		t.Helper()
		got := of()
		if len(want) > 0 { // one of a thousand calls is audited, by chance; no audit stays behind the last stage
			got = slices.DeleteFunc(got, func(name string) bool { return strings.HasPrefix(name, "routerd_plugin_audits_total") })
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	none := open(host.Scoped(t.Context(), "trial"), trapping)
	check("a stage of a dry run")
	first := open(t.Context(), trapping)
	one := []string{"routerd_plugin_calls_total{test}", "routerd_plugin_faults_total{test,unreachable}", "routerd_plugin_fuel_total{test}"}
	check("with a fault of one reason", one...)
	second := open(t.Context(), good())
	for _, s := range []policy.Scorer{none, first} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		check("while another stage has the name", one...)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	check("after the last stage")
	again := open(t.Context(), good())
	check("of a later stage", "routerd_plugin_calls_total{test}", "routerd_plugin_fuel_total{test}")
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// values reads counters and gauges as name{label values}.
func values(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}
