//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// closeWithin is how soon a worker sees that its caller's caller has gone. A
// crowded machine gets ten times that.
const closeWithin = 100 * time.Millisecond

// The official client does unary, streamed and cancelled completions.
func TestOfficialPythonClient(t *testing.T) {
	e := simtest.Start(t, func(c *sim.Config) { c.Model, c.DecodePerToken = "m", 5*time.Millisecond })
	r := startRouter(t, "workers:\n  static:\n"+worker(1, "w1", "m", e))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, mustEnv(t, "ROUTERD_PYTHON"), "openai_client.py", r.frontend+"/v1", "m")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Fields(string(out))
	var cancelledAt int64
	if _, err := fmt.Sscan(lines[len(lines)-1], &cancelledAt); err != nil {
		t.Fatalf("the client said %q", out)
	}
	var stats struct {
		Cancellations []struct {
			At int64 `json:"at_unix_nano"`
		} `json:"cancellations"`
	}
	eventually(t, 10*closeWithin, func() error {
		engineJSON(t, e, "GET", "/sim/stats", nil, &stats)
		if len(stats.Cancellations) != 1 {
			return fmt.Errorf("%d cancellations at the worker, want 1", len(stats.Cancellations))
		}
		return nil
	})
	took := time.Duration(stats.Cancellations[0].At - cancelledAt)
	t.Logf("the worker saw the close %s after the client's (stated: %s)", took, closeWithin)
	if took > 10*closeWithin {
		t.Errorf("the worker saw the close after %s, want at most %s", took, 10*closeWithin)
	}
	r.idle("m", 10*closeWithin)
}
