package host_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/internal/testkit"
)

func TestTheHistorySaysWhy(t *testing.T) {
	dir := t.TempDir()
	b := twoRevisions(t, dir)
	ctx, why := t.Context(), host.Because("ticket 7")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := b.source.Put(ctx, "default", spec("builtin:round-robin"), "ann", why)
	must(err)
	_, err = b.source.SetShadow(ctx, "default", host.ShadowSpec{Revision: 4, Sample: 0.5}, "ann", why)
	must(err)
	_, err = b.source.SetShadow(ctx, "default", host.ShadowSpec{}, "ann", why)
	must(err)
	for _, spec := range []host.CanarySpec{{Revision: 3, Percent: 5}, {}, {Revision: 3, Percent: 6}} {
		_, err = b.source.SetCanary(ctx, "default", spec, "ann", why)
		must(err)
	}
	_, _, err = b.source.Rollback(ctx, "default", 0, "ann", why) // ends the canary
	must(err)
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 7})
	_, _, err = b.source.Promote(ctx, "default", "ann", why)
	must(err)
	_, _, err = b.source.Rollback(ctx, "default", 1, "ann", why)
	must(err)
	_, _, err = b.source.Activate(ctx, "default", 2, "ann", why)
	must(err)
	var got []string
	for _, c := range b.show(t, "default").History {
		if c.Who == "ann" {
			got = append(got, c.What+": "+c.Why)
		}
	}
	want := []string{
		"put: ticket 7", "shadow: sample 0.5; ticket 7", "shadow_end: ticket 7", "canary: 5 % by request; ticket 7", "canary_end: ticket 7",
		"canary: 6 % by request; ticket 7", "rollback: the canary was ended; ticket 7", "promote: ticket 7", "rollback: ticket 7", "activate: ticket 7",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// trip lets revision 3 of a guarded bench trip as the active one.
func (b *bench) trip(t testing.TB) {
	t.Helper()
	b.activate(t, "default", 3)
	for range 5 {
		b.decide(t, "", badSeed)
	}
}

func TestWhatHasTrippedIsKnownByTheHistory(t *testing.T) {
	b := guarded(t, t.TempDir(), time.Minute)
	b.trip(t)
	testkit.Until(t, "the trip is written down", func() bool { return b.last(t).What == "trip" })
	if _, _, err := b.source.Rollback(t.Context(), "default", 0, "test"); err != nil {
		t.Fatal(err)
	}
	p := b.show(t, "default")
	if c, ok := p.LastTrip(3); !ok || c.At.IsZero() || !strings.Contains(c.Why, "E_TRAP") {
		t.Errorf("revision 3: got %+v, %v", c, ok)
	}
	for _, number := range []int{0, 1, 2, 9} {
		if c, ok := p.LastTrip(number); ok {
			t.Errorf("revision %d has not tripped: got %+v", number, c)
		}
	}
}

func TestACanaryThatTrippedIsKnownByTheHistory(t *testing.T) {
	b := guarded(t, t.TempDir(), time.Minute)
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 100})
	for range 5 {
		b.decide(t, "", badSeed)
	}
	testkit.Until(t, "the canary ends", func() bool { return b.show(t, "default").Canary == nil })
	p := b.show(t, "default")
	if c, ok := p.LastTrip(3); !ok || c.What != "rollback" {
		t.Errorf("revision 3: got %+v, %v", c, ok)
	}
	if c, ok := p.LastTrip(2); ok {
		t.Errorf("revision 2 has not tripped: got %+v", c)
	}
}

func TestATripIsWrittenDownThoughARollbackWasQuicker(t *testing.T) {
	b := openBench(t, t.TempDir())
	b.upload(t, "bad", trapping())
	b.put(t, "default", spec("builtin:round-robin"))
	b.put(t, "default", spec("module:bad"))
	b.activate(t, "default", 2)
	b.trip(t) // nothing runs that would write it down
	if b.states(t, "default")[3] != policy.Tripped {
		t.Fatal("it has not tripped")
	}
	if _, _, err := b.source.Rollback(context.Background(), "default", 0, "test"); err != nil {
		t.Fatal(err)
	}
	b.run(t)
	testkit.Until(t, "the trip is written down", func() bool {
		p := b.show(t, "default")
		_, ok := p.LastTrip(3)
		return ok
	})
	if p := b.show(t, "default"); p.Active != 2 || b.states(t, "default")[3] != policy.Retired {
		t.Errorf("active %d, states %v", p.Active, b.states(t, "default"))
	}
}
