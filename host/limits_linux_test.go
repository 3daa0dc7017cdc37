package host_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/host"
)

// Commands that make this binary a process that limits itself and then runs
// into the limit.
const (
	burnCommand = "burn-cpu"
	eatCommand  = "eat-memory"
)

func runIntoLimit(command string) {
	cpu, data := 20*time.Second, uint64(1<<30)
	if command == burnCommand {
		cpu = time.Second
	} else {
		data = 200 << 20
	}
	if err := host.LimitSelf(cpu, data); err != nil {
		return
	}
	var kept [][]byte
	for command == burnCommand || len(kept) < 1000 {
		if command == eatCommand {
			kept = append(kept, make([]byte, 1<<20))
		}
	}
	_ = kept
}

func limited(t *testing.T, command string) (state *os.ProcessState, noise string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], command, "")
	var out strings.Builder
	cmd.Stderr = &out
	if err := cmd.Run(); err == nil {
		t.Fatalf("%s: the process ended by itself", command)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s: the limit did not bite", command)
	}
	return cmd.ProcessState, out.String()
}

func TestChildsProcessorTimeIsLimited(t *testing.T) {
	state, _ := limited(t, burnCommand)
	if used := state.UserTime() + state.SystemTime(); state.Exited() || used > 5*time.Second {
		t.Errorf("got %s after %s, want killed after about 1 s", state, used)
	}
}

func TestChildsMemoryIsLimited(t *testing.T) {
	_, noise := limited(t, eatCommand)
	// The race detector has words of its own for it.
	if !host.OutOfMemory(noise) && !strings.Contains(noise, "failed to allocate") {
		t.Errorf("got %.200q, want the runtime out of memory", noise)
	}
}
