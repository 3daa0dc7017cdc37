package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/plugins/abi"
)

func TestAReloadAnswersTheKeysThatChanged(t *testing.T) {
	b := newBench(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, changed := range [][]string{nil, {"frontend.grace", "log.level"}} {
		b.mu.Lock()
		b.reloaded = admin.Reloaded{Changed: changed, At: at}
		b.mu.Unlock()
		var got admin.Reloaded
		b.call(t, "POST", "/v1/config/reload", nil).into(t, http.StatusOK, &got)
		if diff := cmp.Diff(admin.Reloaded{Changed: append([]string{}, changed...), At: at}, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	b.callWith(t, "POST", "/v1/config/reload", nil, "").refused(t, http.StatusUnauthorized, "unauthorized", "")
	b.call(t, "POST", "/v1/config/reload", "{}").refused(t, http.StatusBadRequest, "invalid", "body")
	b.call(t, "PUT", "/v1/config/reload", nil).refused(t, http.StatusMethodNotAllowed, "unsupported", "")
	if a := b.call(t, "GET", "/v1/config/reload", nil); a.status != http.StatusOK || a.body != "{\"last\":null}\n" {
		t.Errorf("got %d %s", a.status, a.body)
	}
	last := admin.LastReload{At: at, Trigger: "file", Result: "refused", Changed: []string{}, Problems: []string{"frontend.gracee: there is no such key"}}
	b.mu.Lock()
	b.last = &last
	b.mu.Unlock()
	var shown struct{ Last *admin.LastReload }
	b.call(t, "GET", "/v1/config/reload", nil).into(t, http.StatusOK, &shown)
	if diff := cmp.Diff(&last, shown.Last); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestARefusedReloadNamesEveryKey(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		name         string
		err          error
		status       int
		code         string
		step         string
		item         string
		allowed, say string
	}{
		{
			"values", &admin.ReloadError{Code: admin.CodeInvalid, Step: admin.ReloadCheck, Problems: []admin.ReloadProblem{
				{Key: "frontend.retries", Allowed: "0 to 10", Text: "routerd.yaml:1:2: frontend.retries:\n\"11\" is not allowed; allowed: 0 to 10"},
				{Key: "frontend.grace", Allowed: "a length of time", Text: "frontend.grace: \"30\" is not allowed"},
			}}, http.StatusBadRequest, "invalid", "check", "frontend.retries, frontend.grace", "0 to 10; a length of time", `routerd.yaml:1:2: frontend.retries: \"11\"`,
		},
		{
			"restart", &admin.ReloadError{Code: admin.CodeConflict, Step: admin.ReloadRestart, Problems: []admin.ReloadProblem{
				{Key: "admin.listen", Allowed: "a restart", Text: "admin.listen"}, {Key: "data_dir", Allowed: "a restart", Text: "data_dir"},
			}}, http.StatusConflict, "conflict", "restart", "admin.listen, data_dir", "a restart", "admin.listen; data_dir",
		},
		{
			"stopping", &admin.ReloadError{Code: admin.CodeUnavailable, Problems: []admin.ReloadProblem{{Text: "the router is shutting down"}}},
			http.StatusServiceUnavailable, "unavailable", "", "", "", "shutting down",
		},
		{
			"a module", fmt.Errorf("policies.fast: %w", &host.LoadError{Step: host.StepSize, Code: abi.EDigest, Item: "x", Allowed: "y"}),
			http.StatusUnprocessableEntity, string(abi.EDigest), host.StepSize, "x", "y", "policies.fast",
		},
		{
			"a field", fmt.Errorf("policies: %w", &fleet.FieldError{Field: "routing.default", Value: "z", Allowed: "default"}),
			http.StatusBadRequest, "invalid", "check", "routing.default", "default", "z",
		},
	} {
		b.mu.Lock()
		b.refusal = c.err
		b.mu.Unlock()
		a := b.call(t, "POST", "/v1/config/reload", nil)
		a.refused(t, c.status, c.code, c.say)
		f := a.failure(t)
		if f.Details.Step != c.step || f.Details.Item != c.item || f.Details.Allowed != c.allowed {
			t.Errorf("%s: details %+v", c.name, f.Details)
		}
	}
}

func TestConfigureHoldsForTheNextCall(t *testing.T) {
	b := newBench(t)
	cfg := admin.DefaultConfig()
	cfg.Token = "another-token-0123456789"
	status := func(path, authorization string, body any) int {
		t.Helper()
		method := "GET"
		if body != nil {
			method = "PUT"
		}
		return b.callWith(t, method, path, body, authorization).status
	}
	large := strings.Repeat(" ", 2<<10)
	before := []int{
		status("/metrics", "", nil), status("/v1/workers", "Bearer "+token, nil), status("/v1/workers", "Bearer "+cfg.Token, nil),
		status("/v1/workers/w1", "Bearer "+token, large),
	}
	bad := cfg
	bad.MaxBody = 1
	if err := b.server.Configure(bad); err == nil || !strings.Contains(err.Error(), "admin.max_body") {
		t.Errorf("got %v", err)
	}
	bad.MaxBody, bad.Token = 1<<20, "short"
	if err := b.server.Configure(bad); err == nil || strings.Contains(err.Error(), "short") {
		t.Errorf("got %v", err)
	}
	cfg.MetricsPublic, cfg.MaxBody = true, 1<<10
	if err := b.server.Configure(cfg); err != nil {
		t.Fatal(err)
	}
	after := []int{
		status("/metrics", "", nil), status("/v1/workers", "Bearer "+token, nil), status("/v1/workers", "Bearer "+cfg.Token, nil),
		status("/v1/workers/w1", "Bearer "+cfg.Token, large),
	}
	if diff := cmp.Diff([][]int{{401, 200, 401, 400}, {200, 401, 200, 413}}, [][]int{before, after}); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
