package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/durable"
)

// killAtEnv makes the changer do the script below and kill itself at a step of
// a write: the first is 1; 0 is none.
const killAtEnv = "ROUTERD_TEST_KILL_AT"

// scripted is one life of a data folder.
type scripted struct {
	modules *store.Store
	source  *host.PolicySource
	paused  bool // steps are not counted
}

func (s *scripted) upload(name string, wasm []byte) error {
	_, _, err := s.modules.Put(name, bytes.NewReader(wasm), "")
	return err
}

func (s *scripted) put(name string, sp policy.Spec) error {
	_, _, err := s.source.Put(context.Background(), name, sp, "test")
	return err
}

func (s *scripted) activate(number int) error {
	_, _, err := s.source.Activate(context.Background(), "default", number, "test")
	return err
}

func (s *scripted) canary(spec host.CanarySpec) error {
	_, err := s.source.SetCanary(context.Background(), "default", spec, "test")
	return err
}

func (s *scripted) shadow(spec host.ShadowSpec) error {
	_, err := s.source.SetShadow(context.Background(), "default", spec, "test")
	return err
}

func (s *scripted) rollback(to int) error {
	_, _, err := s.source.Rollback(context.Background(), "default", to, "test")
	return err
}

func (s *scripted) promote() error {
	_, _, err := s.source.Promote(context.Background(), "default", "test")
	return err
}

func (s *scripted) seed(specs map[string]policy.Spec) error {
	p, err := s.source.PrepareConfig(context.Background(), host.PolicyConfig{Seeds: specs})
	if err != nil {
		return err
	}
	return p.Publish()
}

// fill puts revisions until the oldest one that nothing uses is the next to go.
func (s *scripted) fill(n int) error {
	s.paused = true
	defer func() { s.paused = false }()
	var errs []error
	for i := range n {
		errs = append(errs, s.put("default", weighted(float64(i+2))))
	}
	return errors.Join(errs...)
}

func weighted(w float64) policy.Spec {
	s := spec("builtin:least-load")
	s.Scorers[0].Weight = &w
	return s
}

// trip lets the active revision trip and waits until that is written down.
func (s *scripted) trip() error {
	h, err := s.source.Resolve(fleet.PartitionKey{}, "")
	if err != nil {
		return err
	}
	var d policy.Decision
	for range 3 {
		l := h.Acquire(policy.Ask{Seed: badSeed})
		err = errors.Join(err, l.Decide(context.Background(), rowsOf4(l.Columns, badSeed), &d))
		l.Release()
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for err == nil {
		p, gone := s.source.Show("default")
		if gone != nil || p.History[len(p.History)-1].What == "trip" {
			return gone
		}
		<-tick.C
	}
	return err
}

// activateLast activates the newest revision.
func (s *scripted) activateLast() error {
	p, err := s.source.Show("default")
	if err != nil {
		return err
	}
	return s.activate(p.Revisions[len(p.Revisions)-1].Number)
}

// script is the changes in order.
func script() []func(*scripted) error {
	return []func(*scripted) error{
		func(s *scripted) error { return s.upload("low", lowest()) },
		func(s *scripted) error { return s.put("default", spec("module:low")) }, // 2
		func(s *scripted) error { return s.activate(2) },
		func(s *scripted) error { return s.upload("high", highest()) },
		func(s *scripted) error { return s.put("default", spec("module:high")) }, // 3
		func(s *scripted) error { return s.canary(host.CanarySpec{Revision: 3, Percent: 10}) },
		func(s *scripted) error { return s.canary(host.CanarySpec{Revision: 3, Percent: 50}) },
		func(s *scripted) error {
			return s.canary(host.CanarySpec{Revision: 3, Percent: 5, Header: "x-tier", Value: "gold"})
		},
		func(s *scripted) error { return s.promote() },
		func(s *scripted) error { return s.rollback(0) },
		func(s *scripted) error { return s.shadow(host.ShadowSpec{Revision: 3, Sample: 0.5}) },
		func(s *scripted) error { return s.upload("low", highest()) }, // revision 2 keeps its bytes
		func(s *scripted) error { return s.canary(host.CanarySpec{Revision: 1, Percent: 1}) },
		func(s *scripted) error { return s.rollback(0) },
		func(s *scripted) error {
			return s.seed(map[string]policy.Spec{"p1": spec("module:high"), "p2": spec("builtin:round-robin")})
		},
		func(s *scripted) error { return s.seed(map[string]policy.Spec{"p1": spec("builtin:least-load")}) },
		func(s *scripted) error { return s.promote() }, // the shadow
		func(s *scripted) error { return s.fill(7) },
		func(s *scripted) error { return s.activate(1) },
		func(s *scripted) error { return s.activate(3) },
		func(s *scripted) error { return s.put("default", weighted(99)) }, // revision 2 and its bytes go
		func(s *scripted) error { return s.shadow(host.ShadowSpec{Revision: 4, Sample: 1}) },
		func(s *scripted) error { return s.shadow(host.ShadowSpec{}) },
		func(s *scripted) error { return s.put("p3", spec("module:high")) },
		func(s *scripted) error { return s.source.Remove(context.Background(), "p3", "test") },
		func(s *scripted) error { return s.upload("bad", trapping()) },
		func(s *scripted) error { return s.put("default", spec("module:bad")) },
		func(s *scripted) error { return s.activateLast() },
		func(s *scripted) error { return s.trip() },
		func(s *scripted) error { return s.activateLast() }, // a retry
		func(s *scripted) error { return s.trip() },
		func(s *scripted) error { return s.rollback(0) },
	}
}

// killedAt does the script, says of each change that it was answered, and kills
// this process at a step of a write.
func killedAt(dir, at string) error {
	kill, err := strconv.Atoi(at)
	if err != nil {
		return err
	}
	s := &scripted{}
	steps := 0
	durable.OnStep(func(string) {
		if s.paused {
			return
		}
		if steps++; steps == kill {
			if p, err := os.FindProcess(os.Getpid()); err == nil {
				_ = p.Kill()
			}
			select {} // the signal is on its way
		}
	})
	log := slog.New(slog.DiscardHandler)
	rt, err := host.New(host.DefaultConfig(), log, nil)
	if err != nil {
		return err
	}
	if s.modules, err = store.Open(filepath.Join(dir, "modules")); err != nil {
		return err
	}
	if s.source, err = host.OpenPolicySource(context.Background(), rt, s.modules, host.PolicyConfig{Dir: filepath.Join(dir, "policies")}, log); err != nil {
		return err
	}
	go func() { _ = s.source.Run(context.Background()) }() // ends with the process
	if err := tellState(s.source); err != nil {
		return err
	}
	for i, change := range script() {
		if err := change(s); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
		if err := tellState(s.source); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stdout, "steps", steps)
	return nil
}

// tellState prints the state after a change that was answered.
func tellState(s *host.PolicySource) error {
	b, err := json.Marshal(statesOf(s))
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "state", string(b))
	return nil
}

// statesOf is what must survive of each policy.
func statesOf(s *host.PolicySource) map[string]string {
	out := map[string]string{}
	for _, p := range s.List() {
		var b strings.Builder
		fmt.Fprintf(&b, "active %d previous %d by %s problem %q\n", p.Active, p.Previous, p.ActivatedBy, p.Problem)
		if c := p.Canary; c != nil {
			fmt.Fprintf(&b, "canary %+v by %s\n", c.CanarySpec, c.Who)
		}
		if sh := p.Shadow; sh != nil {
			fmt.Fprintf(&b, "shadow %+v by %s\n", sh.ShadowSpec, sh.Who)
		}
		for _, r := range p.Revisions {
			fmt.Fprintf(&b, "revision %d %v by %s\n", r.Number, r.Digests, r.By)
			if r.Number == p.Active {
				fmt.Fprintf(&b, "it is %s\n", r.State)
			}
		}
		for _, c := range p.History {
			fmt.Fprintf(&b, "change %s %s %d %d %s\n", c.Who, c.What, c.Revision, c.Previous, c.Why)
		}
		out[p.Name] = b.String()
	}
	return out
}

// life runs the script in dir, killed at a step, and returns the states that it
// told and its count of steps, 0 when it was killed.
func life(t *testing.T, dir string, at int) (states []map[string]string, steps int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], crashCommand, dir)
	cmd.Env = append(os.Environ(), killAtEnv+"="+strconv.Itoa(at))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "state":
			var state map[string]string
			if err := json.Unmarshal([]byte(rest), &state); err != nil {
				t.Fatal(err)
			}
			states = append(states, state)
		case "steps":
			if steps, err = strconv.Atoi(rest); err != nil {
				t.Fatal(err)
			}
		}
	}
	if steps == 0 && cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("killed at step %d: it ended by itself: %v, %s", at, err, stderr.String())
	}
	return states, steps
}

func TestKilledAtEachStepLeavesTheStateBeforeOrAfterTheChange(t *testing.T) {
	states, steps := life(t, t.TempDir(), 0)
	if want := len(script()) + 1; len(states) != want || steps < 4*want {
		t.Fatalf("the whole script: %d states, %d steps; want %d states", len(states), steps, want)
	}
	t.Logf("%d changes, %d steps", len(script()), steps)
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for at := range next {
				t.Run(strconv.Itoa(at), func(t *testing.T) { dieAt(t, at, states) })
			}
		})
	}
	for at := 1; at <= steps; at += killStride {
		next <- at
	}
	close(next)
	wg.Wait()
}

func dieAt(t *testing.T, at int, want []map[string]string) {
	dir := t.TempDir()
	told, steps := life(t, dir, at)
	if steps != 0 {
		t.Fatal("it was not killed")
	}
	b := openBench(t, dir)
	before, after := want[max(len(told)-1, 0)], want[min(len(told), len(want)-1)]
	got := statesOf(b.source)
	for name, state := range got {
		if state != before[name] && state != after[name] {
			t.Errorf("policy %s after %d answered changes:\n%s\nwant\n%s\nor\n%s", name, len(told), state, before[name], after[name])
		}
	}
	for name := range before {
		if _, stays := after[name]; stays && got[name] == "" {
			t.Errorf("policy %s is lost", name)
		}
	}
	for _, p := range b.source.List() {
		for _, r := range p.Revisions {
			for _, d := range r.Digests {
				if _, err := b.modules.Bytes(d); err != nil {
					t.Errorf("policy %s revision %d: %v", p.Name, r.Number, err)
				}
			}
		}
	}
	for _, pattern := range []string{"*/.writing-*", "modules/*/.writing-*", "modules/tmp/*"} {
		if left, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(left) > 0 {
			t.Errorf("left: %v (%v)", left, err)
		}
	}
}
