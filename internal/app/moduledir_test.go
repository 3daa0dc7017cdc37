package app_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
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

// A module's file and the policy that uses it can come in one step.
func TestAReloadFindsTheModuleOfAFileThatWasJustPut(t *testing.T) {
	cfg := settings(t)
	cfg.Plugins.ModuleDir = t.TempDir()
	r := startReloadable(t, cfg)
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(cfg.Plugins.ModuleDir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	uses := func(module string) {
		r.set(func(c *config.Config) {
			c.Policies = map[string]policy.Spec{module: {Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "module:" + module}}}}}
		})
	}
	write("first.wasm", wasmtest.Guest{Name: "first"}.Bytes())
	uses("first")
	if a := r.reload(t); a.status != http.StatusOK || !slices.Contains(a.Changed, "policies.first") {
		t.Fatalf("got %+v", a)
	}
	write("second.wasm", []byte("no module"))
	uses("second")
	if a := r.reload(t); a.status != http.StatusBadRequest || !strings.Contains(a.Error.Message, `"second.wasm"`) || !strings.Contains(a.Error.Message, "E_PARSE") {
		t.Errorf("got %+v, want why the module is not there", a)
	}
	uses("first")
	if a := r.reload(t); a.status != http.StatusOK {
		t.Errorf("bad files alone refuse the reload: %+v", a)
	}
	write("second.wasm", wasmtest.Guest{Name: "second"}.Bytes())
	uses("second")
	if a := r.reload(t); a.status != http.StatusOK {
		t.Errorf("got %+v", a)
	}
}
