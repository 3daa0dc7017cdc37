//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// What the guide of the fleet tells an operator to type is typed in its order, at
// other addresses, and does what it says.
func TestTheCommandsOfTheFleetGuide(t *testing.T) {
	text, err := os.ReadFile(repository + "/docs/guide/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	plain := simtest.Start(t, func(c *sim.Config) { c.Model = "my-model" })
	named := simtest.Start(t, func(c *sim.Config) { c.Model = "my-model" })
	r := startRouter(t, "")
	here := strings.NewReplacer(
		"bin/routerd", mustEnv(t, "ROUTERD_BIN"), "http://127.0.0.1:8081", r.admin,
		"http://127.0.0.1:8000", plain.URL(), "http://127.0.0.1:8001", named.URL(),
		"tcp://127.0.0.1:5567", named.EventEndpoints()[0], "tcp://127.0.0.1:5568", named.ReplayEndpoints()[0],
	)
	env := []string{"ROUTERD_ADMIN_URL=" + r.admin, "ROUTERD_ADMIN_TOKEN=" + r.token}
	does := []struct{ begins, says string }{
		{"bin/routerd worker add http://127.0.0.1:8000\n", "ready"},
		{"bin/routerd worker add http://127.0.0.1:8001 --name w1", "ready"},
		{"bin/routerd worker drain w1", "worker w1 has nothing left"},
		{"curl -sS -X POST", `"lifecycle":"draining"`},
	}
	for _, m := range guideBlock.FindAllStringSubmatch(string(text), -1) {
		if m[1] != "sh" {
			continue
		}
		if len(does) == 0 || !strings.HasPrefix(m[2], does[0].begins) {
			t.Fatalf("the guide has a command that nobody expects: %s", m[2])
		}
		if out := typedAs(t, env, "", "sh", "-euc", here.Replace(m[2])); !strings.Contains(out, does[0].says) {
			t.Errorf("%sdoes not say %q:\n%s", m[2], does[0].says, out)
		}
		does = does[1:]
	}
	if len(does) > 0 {
		t.Errorf("the guide lacks the command that begins with %q", does[0].begins)
	}
	for _, name := range []string{"w1", strings.TrimPrefix(plain.URL(), "http://")} {
		eventually(t, soon, func() error {
			var got struct{ Lifecycle string }
			if r.must("GET", "/v1/workers/"+name, nil, &got); got.Lifecycle != "ready" {
				return fmt.Errorf("%s is %s after the last command", name, got.Lifecycle)
			}
			return nil
		})
	}
}
