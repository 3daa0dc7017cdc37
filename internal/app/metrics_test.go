package app_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
)

// Whatever the router has registered, a guest's metric cannot take its name.
func TestAGuestCannotTakeTheNameOfAnyMetricOfTheRouter(t *testing.T) {
	const prefix = "routerd_plugin_"
	all, err := app.Metrics(withService(t))
	if err != nil {
		t.Fatal(err)
	}
	r := startReloadable(t, withService(t))
	tried := 0
	for _, m := range all {
		rest, ok := strings.CutPrefix(m.Name, prefix)
		if !ok {
			continue
		}
		parts := strings.Split(rest, "_")
		for i := 1; i < len(parts); i++ { // each way to read it as a plugin's name and its metric's
			plugin, metric, kind := strings.Join(parts[:i], "-"), strings.Join(parts[i:], "_"), "gauge"
			if parts[len(parts)-1] == "total" {
				kind = "counter"
			}
			guest := wasmtest.Guest{Name: plugin, Extra: fmt.Sprintf(`,"metrics":[{"name":%q,"type":%q,"help":"Mine."}]`, metric, kind)}
			status, answer := r.call(t, http.MethodPut, "/v1/modules/taker", r.Token(), guest.Bytes())
			if status != http.StatusUnprocessableEntity || !strings.Contains(string(answer), m.Name+", which is the host's") {
				t.Errorf("plugin %s, metric %s: got %d %s, want it refused", plugin, metric, status, answer)
			}
			tried++
		}
	}
	if tried < 20 {
		t.Errorf("only %d names were tried", tried)
	}
}

var update = flag.Bool("update", false, "write generated files")

func TestTheWiringIsComplete(t *testing.T) {
	if err := app.Validate(settings(t)); err != nil {
		t.Error(err)
	}
}

// Every metric has a name in the one form, a unit, a help text, and a row in
// the reference.
func TestMetricsHaveProperNamesAndStandInTheReference(t *testing.T) {
	const file = "../../docs/reference/metrics.md"
	cfg := withService(t)
	cfg.SharedCache.URL = "http://127.0.0.1:1"
	cfg.Index.Kind, cfg.Index.Remote.URL, cfg.Index.Serve.Listen = config.IndexRemote, "http://127.0.0.1:1", "127.0.0.1:0" // both, for their metrics
	all, err := app.Metrics(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d metrics were registered", len(all))
	}
	form := regexp.MustCompile(`^routerd_[a-z0-9]+(_[a-z0-9]+)+$`)
	var b strings.Builder
	b.WriteString("# Metrics\n\nGenerated from what the router registers; change it there. `GET /metrics` of the admin API shows them, beside those of the Go runtime and the process.\n\n| metric | labels | meaning |\n|---|---|---|\n")
	for _, m := range all {
		if !form.MatchString(m.Name) {
			t.Errorf("%s is not routerd_<area>_<what>_<unit or total>", m.Name)
		}
		if m.Help == "" {
			t.Errorf("%s has no help text", m.Name)
		}
		for _, secret := range []string{"prompt_text", "session", "token_id", "user"} {
			if strings.Contains(m.Labels, secret) {
				t.Errorf("%s has the unbounded label %s", m.Name, secret)
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Name, strings.ReplaceAll(m.Labels, ",", ", "), m.Help)
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("run go generate ./internal/app (-want +got)\n%s", diff)
	}
}
