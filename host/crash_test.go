package host_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
)

// crashCommand makes this binary a process that changes policies in a folder
// until it is killed.
const crashCommand = "change-until-killed"

func changeUntilKilled(dir string) error {
	if at := os.Getenv(killAtEnv); at != "" {
		return killedAt(dir, at)
	}
	ctx := context.Background()
	rt, err := host.New(host.DefaultConfig(), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return err
	}
	modules, err := store.Open(filepath.Join(dir, "modules"))
	if err != nil {
		return err
	}
	source, err := host.OpenPolicySource(ctx, rt, modules, host.PolicyConfig{Dir: filepath.Join(dir, "policies")}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "open")
	for {
		for name, wasm := range map[string][]byte{"low": lowest(), "high": highest()} {
			if _, _, err := modules.Put(name, strings.NewReader(string(wasm)), ""); err != nil {
				return err
			}
			s := spec("module:" + name)
			w := float64(time.Now().UnixNano()%1e9) / 1e3 // another spec each time
			s.Scorers[0].Weight = &w
			info, _, err := source.Put(ctx, "default", s, "test")
			if err != nil {
				return err
			}
			if _, _, err := source.Activate(ctx, "default", info.Number, "test"); err != nil {
				return err
			}
			fmt.Fprintln(os.Stdout, "active", info.Number)
		}
	}
}

// lastActive runs a changer in dir, kills it after a while and returns the
// number of the last revision that it said was active.
func lastActive(t *testing.T, dir string, after time.Duration) (number int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], crashCommand, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "open" {
		t.Fatalf("the changer said %q", lines.Text())
	}
	kill := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	for lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "active %d", &number); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait() // killed
	return number
}

func TestKilledAtAnyPointKeepsWhatWasAnswered(t *testing.T) {
	dir := t.TempDir()
	last, answered := 0, false
	for i := range 6 {
		if n := lastActive(t, dir, time.Duration(60+40*i)*time.Millisecond); n > 0 {
			last, answered = n, true
		}
		t.Run("restart", func(t *testing.T) {
			b := openBench(t, dir)
			p, err := b.source.Show("default")
			if err != nil {
				t.Fatal(err)
			}
			// The change under way when the kill came may have been written
			// without being answered.
			if p.Problem != "" || p.Active < last || p.Active > last+2 {
				t.Errorf("active %d (problem %q), want %d or the one after", p.Active, p.Problem, last)
			}
			last = p.Active
			if _, number, by := b.pick(t, fleet.PartitionKey{}); number != p.Active || by != policy.ByPolicy {
				t.Errorf("decided by revision %d, %s, want %d, policy", number, by, p.Active)
			}
			left, err := filepath.Glob(filepath.Join(dir, "*", ".writing-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("temporary files left: %v (%v)", left, err)
			}
		})
	}
	if !answered {
		t.Fatal("no changer came to an activation")
	}
}
