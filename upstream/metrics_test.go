package upstream_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestMetricsTellTheCounters(t *testing.T) {
	w := answer(t, ok2)
	c := newClient(t, nil)
	reg := prometheus.NewRegistry()
	if err := c.Register(reg); err != nil {
		t.Fatal(err)
	}
	mustFetch(t, c, w.ep, "ok")
	mustFetch(t, c, w.ep, "ok")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.Metric {
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if v != 0 {
				got = append(got, fmt.Sprintf("%s %v", f.GetName(), v))
			}
		}
	}
	slices.Sort(got)
	want := []string{
		"routerd_upstream_connections 1", "routerd_upstream_dials_total 1", "routerd_upstream_idle_connections 1",
		"routerd_upstream_requests_total 2", "routerd_upstream_reused_connections_total 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
