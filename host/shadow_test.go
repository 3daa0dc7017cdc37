package host_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/internal/testkit"
)

func (b *bench) shadowed(t testing.TB, spec host.ShadowSpec) {
	t.Helper()
	if _, err := b.source.SetShadow(context.Background(), "default", spec, "test"); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) report(t testing.TB) host.ShadowReport {
	t.Helper()
	sh := b.show(t, "default").Shadow
	if sh == nil {
		t.Fatal("no shadow runs")
	}
	return sh.Report
}

func TestAShadowReportsAgreementRegretAndLoad(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.run(t)
	b.shadowed(t, host.ShadowSpec{Revision: 3, Sample: 1})
	for seed := uint64(0); b.report(t).Decided < 5; seed++ {
		if d, rev := b.decide(t, "", seed); rev.Number() != 2 || d.Row != 0 {
			t.Fatalf("revision %d picked row %d, want 2 and 0: a shadow decides nothing", rev.Number(), d.Row)
		}
	}
	// Loads are 0 1 2 3; the active revision picks the least, with totals −load,
	// the shadow the most.
	got := b.report(t)
	got.Seen, got.Sampled, got.Shed, got.Fuel, got.Time = 0, 0, 0, 0, 0
	want := host.ShadowReport{
		Decided: got.Decided, RegretSum: 3 * float64(got.Decided), RegretMean: 3, RegretMax: 3,
		LoadActive: -1.5, LoadShadow: 1.5, Faults: map[string]uint64{},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if r := b.report(t); r.Fuel == 0 || r.Time == 0 || r.Seen != r.Sampled || r.Sampled < r.Decided+r.Shed {
		t.Errorf("got %+v", r)
	}
	if d := cmp.Diff(map[int]policy.State{1: policy.Retired, 2: policy.Active, 3: host.Shadow}, b.states(t, "default")); d != "" {
		t.Errorf("states (-want +got):\n%s", d)
	}
}

func TestAShadowOfTheSamePolicyAgrees(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.run(t)
	b.put(t, "default", spec("module:low", "module:low"))
	b.shadowed(t, host.ShadowSpec{Revision: 4, Sample: 1})
	for seed := uint64(0); b.report(t).Decided < 3; seed++ {
		b.decide(t, "", seed)
	}
	if r := b.report(t); r.Agreed != r.Decided || r.RegretSum != 0 {
		t.Errorf("got %+v, want all agreed without regret", r)
	}
}

func TestAShadowHasItsOwnInstancesAndGivesThemBack(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 1})
	before := b.rt.Usage()
	b.shadowed(t, host.ShadowSpec{Revision: 3, Sample: 1})
	if u := b.rt.Usage(); u.Pools != before.Pools+1 || u.Modules != before.Modules {
		t.Errorf("usage: got %+v, want one pool more than %+v", u, before)
	}
	b.shadowed(t, host.ShadowSpec{Revision: 3, Sample: 0.5}) // made no second time
	if u := b.rt.Usage(); u.Pools != before.Pools+1 {
		t.Errorf("usage: got %+v", u)
	}
	b.shadowed(t, host.ShadowSpec{})
	if u := b.rt.Usage(); u != before {
		t.Errorf("usage after the shadow: got %+v, want %+v", u, before)
	}
	if p := b.show(t, "default"); p.Shadow != nil || p.History[len(p.History)-1].What != "shadow_end" {
		t.Errorf("the shadow goes on: %+v", p.Shadow)
	}
}

func TestAPromotedShadowDecidesWithTheInstancesOfRequests(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.run(t)
	b.shadowed(t, host.ShadowSpec{Revision: 3, Sample: 1})
	if active, previous, err := b.source.Promote(t.Context(), "default", "test"); err != nil || active != 3 || previous != 2 {
		t.Errorf("got active %d, previous %d (%v), want 3, 2", active, previous, err)
	}
	if d, rev := b.decide(t, "", 1); rev.Number() != 3 || d.Row != 3 {
		t.Errorf("revision %d picked row %d, want 3 and 3", rev.Number(), d.Row)
	}
	testkit.Until(t, "one pool is left", func() bool { return b.rt.Usage().Pools == 1 })
	if sh := b.show(t, "default").Shadow; sh != nil {
		t.Errorf("the shadow goes on: %+v", sh)
	}
}

func TestAShadowsFaultsAreCountedAndTripNothing(t *testing.T) {
	b := guarded(t, t.TempDir(), time.Minute)
	b.shadowed(t, host.ShadowSpec{Revision: 3, Sample: 1})
	for range 3 {
		before := b.report(t).Faults["unreachable"]
		testkit.Until(t, "the shadow faults", func() bool {
			if d, _ := b.decide(t, "", badSeed); d.By != policy.ByPolicy {
				t.Fatal("the active revision did not decide")
			}
			return b.report(t).Faults["unreachable"] > before
		})
	}
	if r := b.report(t); r.Decided != 0 || b.states(t, "default")[3] != host.Shadow {
		t.Errorf("got %+v, state %s", r, b.states(t, "default")[3])
	}
}

func TestAShadowShedsWhatItHasNoTimeFor(t *testing.T) {
	b := twoRevisions(t, t.TempDir()) // nobody runs the shadow: the queue fills
	b.shadowed(t, host.ShadowSpec{Revision: 3, Sample: 1})
	testkit.Until(t, "the queue is full", func() bool {
		b.decide(t, "", 1)
		r := b.report(t)
		return r.Sampled-r.Shed == 64
	})
	before := b.report(t)
	for range 100 {
		b.decide(t, "", 1)
	}
	if r := b.report(t); r.Shed != before.Shed+100 || r.Sampled-r.Shed != 64 || r.Decided != 0 {
		t.Errorf("got %+v after %+v, want 100 more shed", r, before)
	}
}

func TestASampleIsDrawnByTheRequest(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.shadowed(t, host.ShadowSpec{Revision: 3, Sample: 0.25})
	for seed := range uint64(2000) {
		b.decide(t, "", policy.SplitMix64(seed))
	}
	if r := b.report(t); r.Seen != 2000 || r.Sampled < 420 || r.Sampled > 580 {
		t.Errorf("a sample of 0.25 chose %d of %d", r.Sampled, r.Seen)
	}
}

func TestShadowsTakeAtMostATenthOfACore(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.run(t)
	b.shadowed(t, host.ShadowSpec{Revision: 3, Sample: 1})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for seed := uint64(0); ; seed++ {
			select {
			case <-stop:
				return
			default:
				b.decide(t, "", seed)
			}
		}
	})
	began := time.Now()
	testkit.Until(t, "half a second of traffic", func() bool { return time.Since(began) > 500*time.Millisecond })
	close(stop)
	wg.Wait()
	r, share := b.report(t), 0.0
	if share = float64(r.Time) / float64(time.Since(began)); share > 0.11 || r.Decided == 0 || r.Shed == 0 {
		t.Errorf("the shadow took %.3f of a core: %+v", share, r)
	}
	t.Logf("share %.3f of a core; %d seen, %d decided, %d shed", share, r.Seen, r.Decided, r.Shed)
}

func TestAShadowChangesWhileRequestsComeAndGo(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.run(t)
	b.put(t, "default", spec("builtin:round-robin"))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for seed := uint64(0); ; seed++ {
				select {
				case <-stop:
					return
				default:
					b.decide(t, "", seed)
				}
			}
		})
	}
	for i := range 15 {
		b.shadowed(t, host.ShadowSpec{Revision: 3 + i%2, Sample: 1})
	}
	b.shadowed(t, host.ShadowSpec{})
	close(stop)
	wg.Wait()
	testkit.Until(t, "only the active revision's module is loaded", func() bool {
		u := b.rt.Usage()
		return u.Pools == 1 && u.Modules == 1
	})
}
