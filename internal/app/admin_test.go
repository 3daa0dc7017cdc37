package app_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
)

// say calls the admin API with a JSON body.
func say(t *testing.T, a *app.App, method, path, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, a.AdminURL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.Token())
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestTheAdminAPIKnowsTheLimitsOfModules(t *testing.T) {
	cfg := settings(t)
	cfg.Plugins.FuelCap, cfg.Plugins.MemoryLimit = 123_456_789, config.Bytes(300<<20)
	cfg.Plugins.Headers = []string{"x-team", "x-tier"}
	a := start(t, cfg)
	defer func() {
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	var got struct {
		Limits struct{ Runtime map[string]any }
	}
	if code := admin(t, a, "/v1/policies/default", &got); code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	want := map[string]any{
		"call_deadline": cfg.Plugins.CallDeadline.Std().String(), "pool_wait": cfg.Plugins.PoolWait.Std().String(),
		"memory_limit": float64(300 << 20), "fuel_cap": 123_456_789.0,
	}
	if diff := cmp.Diff(want, got.Limits.Runtime); diff != "" {
		t.Error(diff)
	}
	if code, text := say(t, a, http.MethodPut, "/v1/policies/default", `{"scorers":[{"use":"builtin:least-load"}]}`); code != http.StatusCreated {
		t.Fatalf("status %d: %s", code, text)
	}
	canary := func(header string) (int, string) {
		t.Helper()
		return say(t, a, http.MethodPost, "/v1/policies/default/canary", `{"revision":2,"header":{"name":"`+header+`","value":"v"}}`)
	}
	code, text := canary("x-other")
	var refused struct {
		Error struct {
			Code    string
			Details struct{ Item, Allowed string }
		}
	}
	if err := json.Unmarshal([]byte(text), &refused); err != nil {
		t.Fatal(err)
	}
	if e := refused.Error; code != http.StatusBadRequest || e.Code != "invalid" || e.Details.Item != "header.name" || !strings.Contains(e.Details.Allowed, "x-team, x-tier") {
		t.Errorf("a header that is not listed: got %d %s", code, text)
	}
	if code, text := canary("X-Tier"); code != http.StatusOK {
		t.Errorf("a listed header: got %d %s", code, text)
	}
}
