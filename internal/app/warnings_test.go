package app_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
)

func TestWhatIsProbablyNotMeantIsToldAtTheStartAndAtEachReload(t *testing.T) {
	cfg := settings(t)
	cfg.Routing.Rules = []config.Rule{{Class: "chat", Policy: "default"}}
	r := startReloadable(t, cfg)
	if n := r.log.Count("code=unknown_class key=routing.rules[0].class"); n != 1 {
		t.Errorf("the start logged %d warnings, want 1", n)
	}
	got := r.reload(t)
	if got.status != http.StatusOK || len(got.Changed) != 0 || len(got.Warnings) != 1 || got.Warnings[0].Item != "routing.rules[0].class" {
		t.Errorf("a reload that changes nothing answered %+v, want the warning", got)
	}
	if n := r.log.Count("code=unknown_class"); n != 2 {
		t.Errorf("after a reload the log has %d warnings, want 2", n)
	}
	r.change(t, func(c *config.Config) { c.Routing.Rules = nil }, "routing.rules")
	if got := r.reload(t); len(got.Warnings) != 0 {
		t.Errorf("without the rule a reload warned of %+v", got.Warnings)
	}
}

func TestTheNameOfABuiltInWherePoliciesAreNamedIsExplained(t *testing.T) {
	for name, want := range map[string]string{
		"two-tier":         `policies: {two-tier: {"policy": {"use": "builtin:two-tier"}}}`,
		"builtin:two-tier": `policies: {two-tier: {"policy": {"use": "builtin:two-tier"}}}`,
		"least-load":       `policies: {least-load: {"scorers": [{"use": "builtin:least-load"}]}}`,
		"nobody":           "a policy with an active revision: default",
	} {
		cfg := settings(t)
		cfg.Routing.Default = name
		_, err := app.Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err == nil || !strings.HasPrefix(err.Error(), "routing.default: ") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("start with %s: %v, want it to end in %s", name, err, want)
		}
	}
	r := startReloadable(t, settings(t))
	r.set(func(c *config.Config) {
		c.Routing.Rules = []config.Rule{{Model: "m", Policy: "sticky"}}
	})
	got := r.reload(t)
	if got.status == http.StatusOK || !strings.Contains(got.Error.Message, `routing.rules[0].policy: "sticky"`) ||
		!strings.Contains(got.Error.Message, `policies: {sticky: {"policy": {"use": "builtin:sticky"}}}`) {
		t.Errorf("reload: %+v, want how a policy is made of the built-in", got)
	}
	// What it says works.
	spec, err := policy.ParseSpec([]byte(`{"policy": {"use": "builtin:sticky"}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.change(t, func(c *config.Config) { c.Policies = map[string]policy.Spec{"sticky": spec} }, "policies.sticky", "routing.rules")
}
