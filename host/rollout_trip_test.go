package host_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/internal/testkit"
)

// run runs the source until the test ends.
func (b *bench) run(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.source.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// damage spoils the stored bytes of a module.
func damage(t testing.TB, dir string, wasm []byte) {
	t.Helper()
	blob := filepath.Join(dir, "modules", "blobs", strings.TrimPrefix(host.Digest(wasm), "sha256:"))
	if err := os.WriteFile(blob, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func probing(every time.Duration) func(*host.PolicyConfig) {
	return func(c *host.PolicyConfig) { c.ProbeInterval = every }
}

// guarded is a running bench whose default policy has the active revision 2 of
// low and revision 3 of a module that traps for badSeed.
func guarded(t testing.TB, dir string, probe time.Duration) *bench {
	t.Helper()
	b := openBench(t, dir, probing(probe))
	b.upload(t, "low", lowest())
	b.upload(t, "bad", trapping())
	b.put(t, "default", spec("module:low"))
	b.put(t, "default", spec("module:bad"))
	b.activate(t, "default", 2)
	b.run(t)
	return b
}

func (b *bench) last(t testing.TB) host.Change {
	t.Helper()
	h := b.show(t, "default").History
	return h[len(h)-1]
}

func TestACanaryThatStartsToTrapRollsItselfBack(t *testing.T) {
	const callers, calls = 8, 500
	dir := t.TempDir()
	b := guarded(t, dir, time.Minute)
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 50})
	h, err := b.source.Resolve(fleet.PartitionKey{}, "")
	if err != nil {
		t.Fatal(err)
	}
	var failed, unanswered, byCanary atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			var d policy.Decision
			for i := range calls {
				seed := policy.SplitMix64(uint64(c*calls + i))
				l := h.Acquire(policy.Ask{Seed: seed})
				if i > calls/2 {
					seed = badSeed // from now on the candidate traps
				}
				if err := l.Decide(context.Background(), rowsOf4(l.Columns, seed), &d); err != nil {
					failed.Add(1)
				}
				if d.By != policy.ByPolicy && d.Fault == nil && !l.Canary {
					unanswered.Add(1)
				}
				if l.Canary {
					byCanary.Add(1)
				}
				l.Release()
			}
		})
	}
	wg.Wait()
	if failed.Load() != 0 || unanswered.Load() != 0 || byCanary.Load() == 0 {
		t.Errorf("%d failures, %d fallbacks without a fault, %d decided by the canary", failed.Load(), unanswered.Load(), byCanary.Load())
	}
	testkit.Until(t, "the canary is rolled back", func() bool { return b.show(t, "default").Canary == nil })
	c := b.last(t)
	if c.Who != "guard" || c.What != "rollback" || c.Revision != 2 || c.Previous != 3 || !strings.Contains(c.Why, "E_TRAP") {
		t.Errorf("history: got %+v", c)
	}
	if s := b.states(t, "default"); s[2] != policy.Active || s[3] != policy.Retired {
		t.Errorf("states: got %v", s)
	}
	testkit.Until(t, "modules that are not used have gone", func() bool { return b.rt.Usage().Modules == 1 })
}

func TestO5_TrippedRevisionIsProbedAndDecidesAgain(t *testing.T) {
	b := guarded(t, t.TempDir(), 20*time.Millisecond)
	b.activate(t, "default", 3)
	b.decide(t, "", 1) // a frame that the revision answers
	for range 1000 {
		if d, _ := b.decide(t, "", badSeed); d.By != policy.ByFallback {
			t.Fatal("a trap was not answered by the fallback")
		}
		if b.states(t, "default")[3] == policy.Tripped {
			break
		}
	}
	testkit.Until(t, "the probe lets it decide again", func() bool { return b.states(t, "default")[3] == policy.Active })
	var whats []string
	for _, c := range b.show(t, "default").History {
		if c.Who == "guard" {
			whats = append(whats, c.What)
		}
	}
	if len(whats) < 2 || whats[0] != "trip" || whats[1] != "probe_ok" {
		t.Errorf("the guard's history: %v", whats)
	}
	if d, _ := b.decide(t, "", 2); d.By != policy.ByPolicy {
		t.Error("on probation the fallback decides")
	}
	// On probation the first fault is one too many.
	if b.decide(t, "", badSeed); b.show(t, "default").Stats.Trips != 2 {
		t.Errorf("on probation a trap did not trip: %+v", b.show(t, "default").Stats)
	}
}

func TestO5_AProbeThatFailsLeavesItTripped(t *testing.T) {
	b := guarded(t, t.TempDir(), 10*time.Millisecond)
	b.activate(t, "default", 3)
	for range 5 {
		b.decide(t, "", badSeed) // the only kind of frame that there is
	}
	testkit.Until(t, "the trip is written down", func() bool { return b.last(t).What == "trip" })
	faults := func() uint64 { return b.show(t, "default").Stats.Faults["unreachable"] }
	before, probes := faults(), b.show(t, "default").Probes
	testkit.Until(t, "a probe ran", func() bool { return b.show(t, "default").Probes > probes })
	if s := b.states(t, "default")[3]; s != policy.Tripped || faults() != before {
		t.Errorf("after a failed probe the revision is %s with %d faults, want tripped with %d", s, faults(), before)
	}
	// An operator gives it another chance.
	b.activate(t, "default", 3)
	if c := b.last(t); c.What != "retry" || c.Revision != 3 || c.Who != "test" {
		t.Errorf("history: got %+v", c)
	}
	if d, _ := b.decide(t, "", 1); d.By != policy.ByPolicy {
		t.Error("after the operator's retry the fallback decides")
	}
}

func TestARevisionMadeAnewAfterATripStartsFresh(t *testing.T) {
	b := guarded(t, t.TempDir(), time.Minute)
	b.tripActive(t)
	// Rolled back and forth again it is made anew: another chance.
	for _, want := range []int{2, 3} {
		if active, _, err := b.source.Rollback(t.Context(), "default", 0, "test"); err != nil || active != want {
			t.Errorf("rollback: got %d (%v), want %d", active, err, want)
		}
	}
	if s := b.states(t, "default")[3]; s != policy.Active {
		t.Errorf("made anew it is %s", s)
	}
}

// tripActive activates revision 3, trips it and waits until that is written.
func (b *bench) tripActive(t testing.TB) {
	t.Helper()
	b.activate(t, "default", 3)
	b.decide(t, "", 1) // a frame that it answers
	for range 5 {
		b.decide(t, "", badSeed)
	}
	testkit.Until(t, "the trip is written down", func() bool { return b.last(t).What == "trip" })
}
