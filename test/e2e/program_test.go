//go:build e2e

package e2e_test

import (
	"bytes"
	"errors"
	"os/exec"
	"testing"
)

// run runs the built program to its end and returns its exit code and what it
// said.
func run(t *testing.T, env []string, args ...string) (code int, out, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), mustEnv(t, "ROUTERD_BIN"), args...)
	cmd.Env = append(routerEnv(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), stdout.String(), stderr.String()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, stdout.String(), stderr.String()
}

// cli runs a verb of the command line against a router.
func (r *router) cli(args ...string) (code int, out, said string) {
	r.t.Helper()
	return run(r.t, []string{"ROUTERD_ADMIN_URL=" + r.admin, "ROUTERD_ADMIN_TOKEN=" + r.token}, args...)
}
