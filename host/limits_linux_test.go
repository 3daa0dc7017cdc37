package host_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/meter"
)

// Commands that make this binary a process that limits itself and then runs
// into the limit.
const (
	burnCommand = "burn-cpu"
	eatCommand  = "eat-memory"
)

// orphanCommand makes this binary a process that compiles something long in a
// child.
const orphanCommand = "compile-bomb"

func compileBomb(dir string) {
	child, err := host.NewChild()
	if err != nil {
		return
	}
	wasm := bombOf(400)
	m, err := meter.Decode(wasm, meter.DefaultLimits())
	if err != nil {
		return
	}
	if metered, err := m.Rewrite(meter.Options{MemoryMaxPages: 64, StartFuel: 10_000, Slice: 10_000}); err == nil {
		_ = child.Compile(context.Background(), wasm, metered, dir)
	}
}

// childOf waits for a process to have a compile child; the runtime has others
// for a moment.
func childOf(t *testing.T, pid int) string {
	t.Helper()
	for end := time.After(2 * time.Minute); ; {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lists {
			b, _ := os.ReadFile(l) // a thread may have ended
			for _, child := range strings.Fields(string(b)) {
				if args, err := os.ReadFile("/proc/" + child + "/cmdline"); err == nil && strings.Contains(string(args), "compile-module") {
					return child
				}
			}
		}
		select {
		case <-end:
			t.Fatal("no child was started")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// running tells whether a process is there and no zombie.
func running(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	_, state, ok := strings.Cut(string(b), ") ")
	return err == nil && ok && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// processorTicks is the time that a process used, in hundredths of a second.
func processorTicks(pid string) (ticks int) {
	b, _ := os.ReadFile("/proc/" + pid + "/stat") // 0 when it is gone
	_, rest, _ := strings.Cut(string(b), ") ")
	if fields := strings.Fields(rest); len(fields) > 11 {
		ticks, _ = strconv.Atoi(fields[11])
	}
	return ticks
}

func TestChildEndsWithItsParent(t *testing.T) {
	cmd := exec.Command(os.Args[0], orphanCommand, t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child := childOf(t, cmd.Process.Pid)
	for end := time.After(2 * time.Minute); processorTicks(child) < 30; { // it has read its input and compiles
		select {
		case <-end:
			t.Fatal("the child does not work")
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	for end := time.After(3 * time.Second); running(child); {
		select {
		case <-end:
			t.Fatal("the child still runs 3 s after its parent was killed")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func runIntoLimit(command, dir string) {
	if command == orphanCommand {
		compileBomb(dir)
		return
	}
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
