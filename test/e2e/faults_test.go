//go:build e2e

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/routerd/routerd/host/wasmtest"
)

func TestM5_ConfigurationWithOneIDTwice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "routerd.yaml")
	text := "workers:\n  static:\n" +
		"  - {id: 5, name: a, url: \"http://127.0.0.1:18001\", model: m}\n" +
		"  - {id: 6, name: b, url: \"http://127.0.0.1:18002\", model: m}\n" +
		"  - {id: 7, name: c, url: \"http://127.0.0.1:18003\", model: m}\n" +
		"  - {id: 8, name: d, url: \"http://127.0.0.1:18004\", model: m}\n" +
		"  - {id: 5, name: e, url: \"http://127.0.0.1:18005\", model: m}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"config", "check", "-c", file},
		{"serve", "-c", file, "--data_dir", t.TempDir(), "--frontend.listen", "127.0.0.1:0", "--admin.listen", "127.0.0.1:0"},
	} {
		code, _, said := run(t, nil, args...)
		t.Logf("%s: exit %d: %s", strings.Join(args[:2], " "), code, said)
		if code != 2 {
			t.Errorf("%s: exit code %d, want 2", args[0], code)
		}
		for _, want := range []string{"workers.static", "id", "5"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: the message %q does not name %q", args[0], said, want)
			}
		}
	}
}

// An operator can give a tripped revision another chance.
func TestO5_OperatorRetriesATrippedRevision(t *testing.T) {
	r := startRouter(t, three(t))
	revision := r.revise("traps", armed(Guest{}, Op(Unreachable)).Bytes())
	r.activate(revision)
	for range 3 {
		hostileOnce(t, r, "unreachable")
	}
	r.activate(revision)
	wellDecided(t, r, 3)
	if got := r.state(revision); got != "active" {
		t.Errorf("the revision is %s after it was activated again, want active", got)
	}
}
