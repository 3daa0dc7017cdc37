//go:build e2e

package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	. "github.com/routerd/routerd/host/wasmtest"
)

// A policy that traps on every call of a kind is no longer called, all requests
// are answered, and the command line shows what became of it.
func TestO5_TripIsVisible(t *testing.T) {
	r := startRouter(t, three(t))
	revision := r.revise("traps", armed(Guest{}, Op(Unreachable)).Bytes())
	r.activate(revision)
	for i := range 1000 {
		if status, _, answer := r.complete(armedAt); status != http.StatusOK {
			t.Fatalf("request %d: status %d: %s", i, status, answer)
		}
	}
	if calls := sum(r.metrics(), "routerd_plugin_calls_total", `"test"`); calls > 10 {
		t.Errorf("the policy was called %v times, want at most 10", calls)
	}
	for _, args := range [][]string{{"policy", "show", "default"}, {"policy", "show", "default", "--output", "json"}, {"policy", "list"}} {
		code, out, said := r.cli(args...)
		if code != 0 || !strings.Contains(out, "tripped") {
			t.Errorf("%v: exit code %d, %s%s, want the state tripped", args, code, out, said)
		}
	}
	r.idle("m", closeWithin*patience)
}
