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

// What the guide of the fleet tells an operator to type is typed in its order, at other
// addresses, and does what it says; what a worker becomes is waited for with the command
// that the guide shows it by.
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
	first := strings.TrimPrefix(plain.URL(), "http://")
	does := []struct{ begins, says, worker, becomes string }{
		{"bin/routerd worker add http://127.0.0.1:8000\n", first, first, "ready"},
		{"bin/routerd worker list\n", first, first, "ready"},
		{"bin/routerd worker add http://127.0.0.1:8001 --name w1", "w1", "w1", "ready"},
		{"bin/routerd worker drain w1", "worker w1 has nothing left", "w1", "draining"},
		{"bin/routerd worker undrain w1", "w1", "w1", "ready"},
		{"curl -sS -X POST", `"lifecycle":"draining"`, "w1", "draining"},
		{"curl -sS -X DELETE", `"name":"w1"`, "w1", "ready"},
	}
	for _, m := range guideBlock.FindAllStringSubmatch(string(text), -1) {
		if m[1] != "sh" {
			continue
		}
		for command := range strings.Lines(m[2]) {
			if len(does) == 0 || !strings.HasPrefix(command, does[0].begins) {
				t.Fatalf("the guide has a command that nobody expects: %s", command)
			}
			if out := typedAs(t, env, "", "sh", "-euc", here.Replace(command)); !strings.Contains(out, does[0].says) {
				t.Errorf("%sdoes not say %q:\n%s", command, does[0].says, out)
			}
			r.listedAs(does[0].worker, does[0].becomes)
			does = does[1:]
		}
	}
	if len(does) > 0 {
		t.Errorf("the guide lacks the command that begins with %q", does[0].begins)
	}
	r.listedAs(first, "ready")
}

// listedAs waits until `routerd worker list` shows a worker in a state.
func (r *router) listedAs(name, state string) {
	r.t.Helper()
	eventually(r.t, soon, func() error {
		code, out, said := r.cli("worker", "list")
		header, workers, _ := strings.Cut(out, "\n")
		at := strings.Index(header, "STATE")
		if code != 0 || at < 0 {
			return fmt.Errorf("worker list: exit code %d, no column STATE in %q: %s", code, header, said)
		}
		for line := range strings.Lines(workers) {
			fields := strings.Fields(line)
			if len(line) > at && len(fields) > 1 && fields[1] == name && strings.HasPrefix(line[at:], state+" ") {
				return nil
			}
		}
		return fmt.Errorf("%s is not %s in the list:\n%s", name, state, out)
	})
}
