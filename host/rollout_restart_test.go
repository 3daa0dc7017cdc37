package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/internal/testkit"
)

// guardedLife runs f with a guarded bench whose folder outlives it.
func guardedLife(t *testing.T, dir string, f func(t *testing.T, b *bench)) {
	t.Helper()
	t.Run("first life", func(t *testing.T) { f(t, guarded(t, dir, time.Minute)) })
}

func TestATripOutlivesARestartUntilSomebodyGivesAnotherChance(t *testing.T) {
	for name, c := range map[string]struct {
		then func(t *testing.T, b *bench)
		want policy.State
	}{
		"nothing else":            {func(*testing.T, *bench) {}, policy.Tripped},
		"a canary that is ended":  {func(t *testing.T, b *bench) { b.canary(t, host.CanarySpec{Revision: 2, Percent: 1}); b.rollback(t, 3) }, policy.Tripped},
		"more changes than kept":  {func(t *testing.T, b *bench) { b.changes(t, 110) }, policy.Tripped},
		"a retry":                 {func(t *testing.T, b *bench) { b.activate(t, "default", 3) }, policy.Active},
		"a rollback and another":  {func(t *testing.T, b *bench) { b.rollback(t, 2); b.rollback(t, 3) }, policy.Active},
		"activated anew":          {func(t *testing.T, b *bench) { b.activate(t, "default", 2); b.activate(t, "default", 3) }, policy.Active},
		"the guard is turned off": {func(t *testing.T, b *bench) { b.reload(t, host.PolicyConfig{GuardOff: true}) }, policy.Active},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			guardedLife(t, dir, func(t *testing.T, b *bench) {
				b.tripActive(t)
				c.then(t, b)
				if s := b.states(t, "default")[3]; s != c.want {
					t.Errorf("before the restart it is %s, want %s", s, c.want)
				}
			})
			b := openBench(t, dir)
			if s := b.states(t, "default")[3]; s != c.want {
				t.Errorf("after the restart it is %s, want %s", s, c.want)
			}
			want := map[policy.State]policy.By{policy.Tripped: policy.ByFallback, policy.Active: policy.ByPolicy}[c.want]
			if d, _ := b.decide(t, "", 1); d.By != want {
				t.Errorf("the %s decides, want the %s", d.By, want)
			}
		})
	}
}

// changes makes n changes that are not about the active revision.
func (b *bench) changes(t testing.TB, n int) {
	t.Helper()
	for i := range n {
		b.canary(t, host.CanarySpec{Revision: 2, Percent: float64(i%90 + 1)})
	}
	b.canary(t, host.CanarySpec{})
}

func (b *bench) rollback(t testing.TB, want int) {
	t.Helper()
	if active, _, err := b.source.Rollback(t.Context(), "default", 0, "test"); err != nil || active != want {
		t.Fatalf("rollback: got %d (%v), want %d", active, err, want)
	}
}

func TestARevisionThatStartsTrippedIsProbed(t *testing.T) {
	dir := t.TempDir()
	guardedLife(t, dir, func(t *testing.T, b *bench) { b.tripActive(t) })
	b := openBench(t, dir, probing(10*time.Millisecond))
	b.run(t)
	if d, _ := b.decide(t, "", 1); d.By != policy.ByFallback { // also the probe's frame
		t.Errorf("the %s decides", d.By)
	}
	testkit.Until(t, "the probe lets it decide again", func() bool { return b.states(t, "default")[3] == policy.Active })
	if c := b.last(t); c.What != "probe_ok" || c.Revision != 3 {
		t.Errorf("history: got %+v", c)
	}
	again := openBench(t, copyOf(t, dir))
	if s := again.states(t, "default")[3]; s != policy.Active {
		t.Errorf("after the probe and a restart it is %s", s)
	}
}

// copyOf is a data folder as a killed process would have left it.
func copyOf(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestADistrustedRevisionStartsDistrusted(t *testing.T) {
	dir := t.TempDir()
	t.Run("first life", func(t *testing.T) {
		b := distrusting(t, dir)
		b.activate(t, "default", 3)
		testkit.Until(t, "the audit trips it", func() bool {
			for range 500 {
				b.decide(t, "", badSeed)
			}
			return b.show(t, "default").Problem != ""
		})
	})
	b := openBench(t, dir)
	if p := b.show(t, "default"); !strings.Contains(p.Problem, "E_NONDETERMINISTIC") || b.states(t, "default")[3] != policy.Tripped {
		t.Errorf("after a restart: problem %q, %s", p.Problem, b.states(t, "default")[3])
	}
	testkit.Until(t, "modules that are not used have gone", func() bool { return b.rt.Usage().Modules == 0 })
	b.activate(t, "default", 3) // an operator knows better
	if p := b.show(t, "default"); p.Problem != "" || b.states(t, "default")[3] != policy.Active {
		t.Errorf("after the operator's activation: %q, %s", p.Problem, b.states(t, "default")[3])
	}
	again := openBench(t, copyOf(t, dir))
	if s := again.states(t, "default")[3]; s != policy.Active {
		t.Errorf("after that and a restart it is %s", s)
	}
}

// TestATripIsWrittenDownAsSoonAsTheDiskTakesIt: a canary that has tripped ends,
// and an active revision stays tripped, also when their file cannot be written
// at once.
func TestATripIsWrittenDownAsSoonAsTheDiskTakesIt(t *testing.T) {
	for _, canary := range []bool{false, true} {
		t.Run(fmt.Sprintf("canary %v", canary), func(t *testing.T) {
			dir := t.TempDir()
			guardedLife(t, dir, func(t *testing.T, b *bench) {
				if canary {
					b.canary(t, host.CanarySpec{Revision: 3, Percent: 100})
				} else {
					b.activate(t, "default", 3)
				}
				changes := len(b.show(t, "default").History)
				policies := filepath.Join(dir, "policies")
				if err := os.Rename(policies, policies+".away"); err != nil {
					t.Fatal(err)
				}
				for range 5 {
					b.decide(t, "", badSeed)
				}
				testkit.Until(t, "it was tried", func() bool { return b.logs.Count("it is tried again") > 0 })
				if got := len(b.show(t, "default").History); got != changes {
					t.Errorf("%d changes that are not written", got-changes)
				}
				if err := os.Rename(policies+".away", policies); err != nil {
					t.Fatal(err)
				}
				testkit.Until(t, "it is written down", func() bool { return len(b.show(t, "default").History) > changes })
				if n := b.logs.Count("it is tried again"); n != 1 {
					t.Errorf("the log says %d times that it is tried again", n)
				}
			})
			b := openBench(t, dir)
			p := b.show(t, "default")
			if canary && (p.Canary != nil || b.states(t, "default")[3] != policy.Retired) {
				t.Errorf("after a restart the canary is %+v", p.Canary)
			}
			if !canary && b.states(t, "default")[3] != policy.Tripped {
				t.Errorf("after a restart it is %s", b.states(t, "default")[3])
			}
		})
	}
}
