package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/cli"
	"github.com/routerd/routerd/plugins/abi"
)

func TestAReasonStandsInTheHistory(t *testing.T) {
	r := rolling(t)
	const because = " --reason %q"
	r.run(t, "policy apply default --use builtin:round-robin"+because, "a new one")
	r.run(t, "policy shadow default 2"+because, "a look")
	r.run(t, "policy shadow default off"+because, "seen enough")
	r.run(t, "policy canary default 2 --percent 5"+because, "careful")
	r.run(t, "policy promote default"+because, "good & quick")
	r.run(t, "policy rollback default"+because, "it was not")
	r.run(t, "policy activate default 3"+because, "ticket 7")
	r.run(t, "policy apply default --use builtin:least-load --activate"+because, "at once")
	contains(t, r.run(t, "policy show default"),
		"api put 4 - a new one", "api shadow 2 - sample 1; a look", "api shadow_end 2 - seen enough", "api canary 2 - 5 % by request; careful",
		"api promote 2 1 good & quick", "api rollback 1 2 it was not", "api activate 3 1 ticket 7", "api activate 2 3 at once")
	if err := r.fails(t, "policy activate default 2"+because, "two\nlines"); !strings.Contains(err.Error(), "256 printable") {
		t.Errorf("got %v", err)
	}
	var wrong *cli.UsageError
	if err := r.fails(t, "policy apply default --use builtin:least-load --dry-run"+because, "x"); !errors.As(err, &wrong) {
		t.Errorf("got %v", err)
	}
}

func TestAPolicyIsRemoved(t *testing.T) {
	r := rolling(t)
	r.run(t, "policy apply other --use module:high --activate")
	if out := r.run(t, "policy rm other --reason %q", "no longer used"); out != "removed policy other\n" {
		t.Errorf("got %q", out)
	}
	var refused *cli.APIError
	if err := r.fails(t, "policy rm other"); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("got %v", err)
	}
	if err := r.fails(t, "policy rm default"); !errors.As(err, &refused) || refused.Status != http.StatusConflict || !strings.Contains(err.Error(), "always exists") {
		t.Errorf("got %v", err)
	}
}

// runPolicies lets the policies write down what has tripped.
func (r *router) runPolicies(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	stop() // it takes one look all the same
	if err := r.policies.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestARollbackToWhatHasTrippedPrintsAWarning(t *testing.T) {
	r := rolling(t)
	// A scorer that traps for two rows, which the router has and no self-test.
	bad := Guest{Name: "bad", ScoreTypes: ColumnTypes, Score: Cat(Get(0), Load32(abi.OffRows), I32(2), Op(I32Eq), If(Op(Unreachable)), Column(0))}.Bytes()
	r.run(t, "module put bad %q", r.file(t, "bad.wasm", bad))
	r.run(t, "policy apply default --use module:bad")
	r.run(t, "policy activate default 2")
	r.run(t, "policy activate default 4")
	for _, id := range []string{"a", "b", "c", "d"} {
		r.book(t, id)
	}
	r.runPolicies(t)
	r.run(t, "policy rollback default")
	out := r.run(t, "policy rollback default")
	contains(t, out, "ACTIVE PREVIOUS", "4 2", "warning tripped_before: revision 4 tripped at 2")
	r.run(t, "policy rollback default")
	contains(t, r.run(t, "policy canary default 4 --percent 0"), "2 4 4 at 0 % by request -", "warning tripped_before: revision 4 tripped at 2")
	var got struct{ Warnings []struct{ Code string } }
	if err := json.Unmarshal([]byte(r.run(t, "policy promote default --output json")), &got); err != nil || len(got.Warnings) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	r.run(t, "policy rollback default")
	contains(t, r.run(t, "policy apply default --use module:bad --activate"), "policy default revision 4 active, previous 2", "warning tripped_before: revision 4 tripped at 2")
}
