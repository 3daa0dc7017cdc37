package host_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// publishing is a module with one metric.
func publishing(plugin, metric, kind string) []byte {
	return Guest{Name: plugin, Extra: fmt.Sprintf(`,"metrics":[{"name":%q,"type":%q,"help":"Of a guest."}]`, metric, kind)}.Bytes()
}

func TestAGuestCannotTakeTheNameOfARegisteredMetric(t *testing.T) {
	reg := prometheus.NewRegistry()
	rt, err := host.New(host.DefaultConfig(), slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	// Of another package, with labels that have no values yet.
	reg.MustRegister(prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "routerd_plugin_dir_refused", Help: "Of the host."}, []string{"a"}))
	for _, c := range [][3]string{
		{"dir", "refused", "gauge"},
		{"calls", "total", "counter"},
		{"idle", "faults", "counter"},
		{"idle.faults", "total", "counter"},
		{"memory", "bytes", "gauge"},
		{"compile", "seconds", "gauge"},
		{"compile", "seconds_bucket", "gauge"},
		{"compile-seconds", "count", "gauge"},
		{"compile", "seconds_sum", "gauge"},
	} {
		le := refused(t, rt, publishing(c[0], c[1], c[2]), "")
		if le.Code != abi.EManifest || le.Step != host.StepManifest || !strings.Contains(le.Item, "which is the host's") || !strings.Contains(le.Item, c[1]) {
			t.Errorf("%v: got %v", c, le)
		}
	}
	for _, c := range [][3]string{{"dir", "refusals", "gauge"}, {"dir", "refused", "counter"}, {"mine", "calls", "counter"}} {
		stage(t, rt, publishing(c[0], c[1], c[2]), "")
	}
	if _, err := reg.Gather(); err != nil {
		t.Error(err)
	}
}

// A metric of the host that is registered after a module was loaded is the one
// that is shown.
func TestALaterMetricOfTheHostWins(t *testing.T) {
	rt, reg, _ := told(t)
	stage(t, rt, publishing("dir", "refused", "gauge"), "")
	if _, ok := values(t, reg)["routerd_plugin_dir_refused{"+short(publishing("dir", "refused", "gauge"))+",dir}"]; !ok {
		t.Errorf("the guest's is not shown: %v", values(t, reg))
	}
	own := prometheus.NewGauge(prometheus.GaugeOpts{Name: "routerd_plugin_dir_refused", Help: "Of the host."})
	own.Set(7)
	reg.MustRegister(own)
	got := values(t, reg) // fails where two are at odds
	if got["routerd_plugin_dir_refused"] != 7 {
		t.Errorf("got %v, want the host's", got)
	}
	for name := range got {
		if strings.HasPrefix(name, "routerd_plugin_dir_refused{") {
			t.Errorf("%s is a guest's", name)
		}
	}
}

func short(wasm []byte) string { return strings.TrimPrefix(host.Digest(wasm), "sha256:")[:12] }
