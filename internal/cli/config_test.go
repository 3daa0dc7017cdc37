package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/internal/cli"
)

func TestConfigReloadShowsTheKeysThatChanged(t *testing.T) {
	r := start(t)
	reload := func(more ...string) (string, error) {
		t.Helper()
		c := cli.ConfigReload()
		var out bytes.Buffer
		c.SetOut(&out)
		c.SilenceUsage, c.SilenceErrors = true, true
		c.SetArgs(append([]string{"--admin-url", r.url, "--data-dir", r.dir}, more...))
		err := c.Execute()
		return out.String(), err
	}
	out, err := reload()
	if err != nil || out != "nothing has changed\n" {
		t.Errorf("got %q, %v", out, err)
	}
	r.changed = []string{"frontend.grace", "models.a.b/c"}
	if out, err = reload(); err != nil {
		t.Fatal(err)
	}
	has(t, out, "CHANGED", "frontend.grace", "models.a.b/c")
	var got admin.Reloaded
	out, err = reload("--output", "json")
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Changed) != 2 || got.At.IsZero() {
		t.Errorf("got %s, %v", out, err)
	}
	r.refusal = &admin.ReloadError{Code: admin.CodeConflict, Step: admin.ReloadRestart, Problems: []admin.ReloadProblem{
		{Key: "data_dir", Allowed: "a restart", Text: "data_dir: x, allowed is a restart"}, {Key: "admin.listen", Allowed: "a restart", Text: "admin.listen: y, allowed is a restart"},
	}}
	_, err = reload()
	refused, ok := errors.AsType[*cli.APIError](err)
	if !ok || refused.Status != http.StatusConflict || err.Error() != "conflict: data_dir: x, allowed is a restart; admin.listen: y, allowed is a restart" || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}
