package app_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/app"
)

// Policies of the configuration find the modules of the module directory at the
// start, and without the directory the names stay.
func TestAModuleDirectoryIsReadBeforeThePoliciesAreMade(t *testing.T) {
	cfg := settings(t)
	cfg.Plugins.ModuleDir = t.TempDir()
	file := filepath.Join(cfg.Plugins.ModuleDir, "given.wasm")
	if err := os.WriteFile(file, wasmtest.Guest{}.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Policies = map[string]policy.Spec{"uses": {
		Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "module:given"}}},
	}}
	sources := func(a *app.App) map[string]string {
		t.Helper()
		var got struct {
			Modules []struct{ Name, Source string }
		}
		if code := admin(t, a, "/v1/modules", &got); code != http.StatusOK {
			t.Fatalf("modules: status %d", code)
		}
		out := map[string]string{}
		for _, m := range got.Modules {
			out[m.Name] = m.Source
		}
		return out
	}
	for _, want := range []string{"dir", "api"} {
		a := start(t, cfg)
		if diff := cmp.Diff(map[string]string{"given": want}, sources(a)); diff != "" {
			t.Errorf("modules (-want +got)\n%s", diff)
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		cfg.Plugins.ModuleDir = ""
	}
}
