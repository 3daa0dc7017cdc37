package host_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/routerd/routerd/host"
)

func TestRolloutMetricsAreOfWhatRunsNow(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(b.source.Metrics()); err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	idle := count()
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 20})
	b.shadowed(t, host.ShadowSpec{Revision: 3, Sample: 1})
	b.decide(t, "", 1)
	if n := count(); n != idle+1+12 {
		t.Errorf("%d series with a canary and a shadow, want %d", n, idle+1+12)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v (%v)", problems, err)
	}
	b.shadowed(t, host.ShadowSpec{})
	b.canary(t, host.CanarySpec{})
	if d := cmp.Diff(idle, count()); d != "" {
		t.Errorf("series after the rollouts (-want +got):\n%s", d)
	}
}
