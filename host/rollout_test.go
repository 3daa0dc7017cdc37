package host_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/internal/testkit"
)

// twoRevisions is a bench whose default policy has the active revision 2, which
// picks row 0, and revision 3, which picks row 3.
func twoRevisions(t testing.TB, dir string, change ...func(*host.PolicyConfig)) *bench {
	t.Helper()
	b := openBench(t, dir, change...)
	b.upload(t, "low", lowest())
	b.upload(t, "high", highest())
	b.put(t, "default", spec("module:low"))
	b.put(t, "default", spec("module:high"))
	b.activate(t, "default", 2)
	return b
}

func (b *bench) canary(t testing.TB, spec host.CanarySpec) host.Change {
	t.Helper()
	c, err := b.source.SetCanary(context.Background(), "default", spec, "test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *bench) states(t testing.TB, name string) map[int]policy.State {
	t.Helper()
	out := map[int]policy.State{}
	for _, r := range b.show(t, name).Revisions {
		out[r.Number] = r.State
	}
	return out
}

// share is how many of 1,000 requests revision 3 decided.
func (b *bench) share(t testing.TB) (n int) {
	t.Helper()
	for seed := range uint64(1000) {
		if _, rev := b.decide(t, "", policy.SplitMix64(seed)); rev.Number() == 3 {
			n++
		}
	}
	return n
}

func TestACanaryTakesItsShareAndIsPromoted(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 10})
	if n := b.share(t); n < 70 || n > 130 {
		t.Errorf("a canary at 10 %% decided %d of 1,000", n)
	}
	modules := b.rt.Usage().Modules
	first := b.show(t, "default").Canary
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 50})
	if n := b.share(t); n < 430 || n > 570 {
		t.Errorf("a canary at 50 %% decided %d of 1,000", n)
	}
	if p := b.show(t, "default"); p.Canary.Since != first.Since || p.Canary.Stats.Calls < first.Stats.Calls || b.rt.Usage().Modules != modules {
		t.Errorf("another share made the canary anew: %+v", p.Canary)
	}
	if d := cmp.Diff(map[int]policy.State{1: policy.Retired, 2: policy.Active, 3: host.Canary}, b.states(t, "default")); d != "" {
		t.Errorf("states (-want +got):\n%s", d)
	}
	active, previous, err := b.source.Promote(t.Context(), "default", "test")
	if err != nil || active != 3 || previous != 2 {
		t.Errorf("promote: got active %d, previous %d (%v), want 3, 2", active, previous, err)
	}
	if p := b.show(t, "default"); p.Canary != nil || b.share(t) != 1000 {
		t.Errorf("after the promotion: %+v", p)
	}
	if _, _, err := b.source.Promote(t.Context(), "default", "test"); !errors.Is(err, host.ErrNoRollout) {
		t.Errorf("promote of nothing: got %v", err)
	}
}

func TestARollbackWhileACanaryRunsEndsTheCanaryAlone(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 100})
	active, previous, err := b.source.Rollback(t.Context(), "default", 0, "test")
	if err != nil || active != 2 || previous != 1 {
		t.Errorf("got active %d, previous %d (%v), want 2, 1", active, previous, err)
	}
	if p := b.show(t, "default"); p.Canary != nil || b.share(t) != 0 {
		t.Errorf("the canary goes on: %+v", p.Canary)
	}
	testkit.Until(t, "modules that are not used have gone", func() bool { return b.rt.Usage().Modules == 1 })
	// Without a canary the same words go back to the revision before.
	if active, _, err := b.source.Rollback(t.Context(), "default", 0, "test"); err != nil || active != 1 {
		t.Errorf("got active %d (%v), want 1", active, err)
	}
}

func TestARollbackToARevisionEndsTheCanaryToo(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 50})
	if active, _, err := b.source.Rollback(t.Context(), "default", 1, "test"); err != nil || active != 1 {
		t.Errorf("got active %d (%v), want 1", active, err)
	}
	if p := b.show(t, "default"); p.Canary != nil {
		t.Errorf("the canary goes on: %+v", p.Canary)
	}
}

func TestActivatingTheCanarysRevisionEndsIt(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 50})
	b.activate(t, "default", 3)
	if p := b.show(t, "default"); p.Canary != nil || p.Active != 3 {
		t.Errorf("got active %d, canary %+v", p.Active, p.Canary)
	}
	// A canary of another revision goes on beside a new active one.
	b.canary(t, host.CanarySpec{Revision: 2, Percent: 50})
	b.activate(t, "default", 1)
	if p := b.show(t, "default"); p.Canary == nil || p.Canary.Revision != 2 || p.Active != 1 {
		t.Errorf("got active %d, canary %+v, want 1 with 2 as canary", p.Active, p.Canary)
	}
}

func TestACanaryIsEndedByRevisionZero(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	if c := b.canary(t, host.CanarySpec{}); c != (host.Change{}) {
		t.Errorf("ending no canary: got %+v", c)
	}
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 100})
	if c := b.canary(t, host.CanarySpec{}); c.What != "canary_end" || c.Revision != 3 || c.Who != "test" {
		t.Errorf("got %+v", c)
	}
	if b.share(t) != 0 {
		t.Error("the canary goes on")
	}
}

func TestCanariesAndShadowsOutOfRangeAreRefused(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	before := b.source.List()
	for field, c := range map[string]host.CanarySpec{
		"percent": {Revision: 3, Percent: 101}, "by": {Revision: 3, By: "colour"}, "header": {Revision: 3, Header: "X-Team"},
		"value": {Revision: 3, Value: "v"}, "revision": {Revision: 2, Percent: 5},
	} {
		_, err := b.source.SetCanary(t.Context(), "default", c, "test")
		var fe *fleet.FieldError
		if !errors.As(err, &fe) || fe.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	for _, value := range []string{"", " ", "a ", "a\nb", "a\x00", "\xff", strings.Repeat("x", 257), strings.Repeat("ü", 257)} {
		_, err := b.source.SetCanary(t.Context(), "default", host.CanarySpec{Revision: 3, Percent: 5, Header: "x-team", Value: value}, "test")
		var fe *fleet.FieldError
		if !errors.As(err, &fe) || fe.Field != "value" || !strings.Contains(fe.Allowed, "1 to 256 printable characters") {
			t.Errorf("header value %q: got %v", value, err)
		}
	}
	for _, sample := range []float64{0, -1, 1.1, math.NaN(), math.Inf(1)} {
		_, err := b.source.SetShadow(t.Context(), "default", host.ShadowSpec{Revision: 3, Sample: sample}, "test")
		var fe *fleet.FieldError
		if !errors.As(err, &fe) || fe.Field != "sample" {
			t.Errorf("sample %v: got %v", sample, err)
		}
	}
	b.source.Put(t.Context(), "idle", spec("builtin:least-load"), "test")
	for want, name := range map[error]string{host.ErrNoActive: "idle", host.ErrNoPolicy: "nobody", host.ErrNoRevision: "default"} {
		number := 1
		if errors.Is(want, host.ErrNoRevision) {
			number = 9
		}
		if _, err := b.source.SetCanary(t.Context(), name, host.CanarySpec{Revision: number, Percent: 1}, "test"); !errors.Is(err, want) {
			t.Errorf("canary of %s: got %v, want %v", name, err, want)
		}
		if _, err := b.source.SetShadow(t.Context(), name, host.ShadowSpec{Revision: number, Sample: 1}, "test"); !errors.Is(err, want) {
			t.Errorf("shadow of %s: got %v, want %v", name, err, want)
		}
	}
	if d := cmp.Diff(before[0], b.source.List()[0]); d != "" {
		t.Errorf("the policy changed:\n%s", d)
	}
}

func TestRolloutsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	var before host.PolicyInfo
	t.Run("first life", func(t *testing.T) {
		b := twoRevisions(t, dir)
		b.put(t, "default", spec("builtin:round-robin"))
		b.canary(t, host.CanarySpec{Revision: 3, Percent: 25, By: "session", Header: "x-team", Value: "blue"})
		if _, err := b.source.SetShadow(t.Context(), "default", host.ShadowSpec{Revision: 4, Sample: 0.5}, "test"); err != nil {
			t.Fatal(err)
		}
		before = b.show(t, "default")
	})
	b := openBench(t, dir)
	if d := cmp.Diff(before, b.show(t, "default")); d != "" {
		t.Errorf("(-before +after):\n%s", d)
	}
	if n := b.share(t); n < 190 || n > 310 {
		t.Errorf("a canary at 25 %% decided %d of 1,000", n)
	}
}

func TestACanaryThatCanNoLongerBeMadeEndsAtTheStart(t *testing.T) {
	dir := t.TempDir()
	t.Run("first life", func(t *testing.T) {
		b := twoRevisions(t, dir)
		b.canary(t, host.CanarySpec{Revision: 3, Percent: 100})
		if _, err := b.source.SetShadow(t.Context(), "default", host.ShadowSpec{Revision: 3, Sample: 1}, "test"); err != nil {
			t.Fatal(err)
		}
	})
	damage(t, dir, highest())
	b := openBench(t, dir)
	p := b.show(t, "default")
	if p.Active != 2 || p.Problem != "" || p.Canary != nil || p.Shadow != nil {
		t.Errorf("got %+v, want revision 2 alone", p)
	}
	var ends []string
	for _, c := range p.History[len(p.History)-2:] {
		ends = append(ends, c.Who+" "+c.What)
		if c.Revision != 3 || c.Why == "" {
			t.Errorf("history: got %+v", c)
		}
	}
	if d := cmp.Diff([]string{"start canary_end", "start shadow_end"}, ends); d != "" {
		t.Error(d)
	}
	if b.share(t) != 0 {
		t.Error("a canary that is gone decides")
	}
}

func TestTheHistorySaysWhoDidWhat(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 5, Header: "x-team", Value: "secret"})
	if _, _, err := b.source.Promote(t.Context(), "default", "bob"); err != nil {
		t.Fatal(err)
	}
	type entry struct {
		Who, What          string
		Revision, Previous int
		Why                string
	}
	var got []entry
	for _, c := range b.show(t, "default").History {
		got = append(got, entry{c.Who, c.What, c.Revision, c.Previous, c.Why})
	}
	want := []entry{
		{"built-in", "seed", 1, 0, ""},
		{"test", "put", 2, 0, ""},
		{"test", "put", 3, 0, ""},
		{"test", "activate", 2, 1, ""},
		{"test", "canary", 3, 0, "5 % by request and header x-team"},
		{"bob", "promote", 3, 2, ""},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for i := range 120 {
		b.activate(t, "default", 1+i%2)
	}
	if h := b.show(t, "default").History; len(h) != 100 || h[99].Revision != 2 {
		t.Errorf("%d changes are kept, the last %+v; want the last 100", len(h), h[len(h)-1])
	}
}

func TestRevisionsThatDecideAreKeptHoweverOld(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 5})
	for i := range 14 {
		s := spec("builtin:least-load")
		w := float64(i + 2)
		s.Scorers[0].Weight = &w
		b.put(t, "default", s)
	}
	var numbers []int
	for _, r := range b.show(t, "default").Revisions {
		numbers = append(numbers, r.Number)
	}
	if d := cmp.Diff([]int{1, 2, 3, 11, 12, 13, 14, 15, 16, 17}, numbers); d != "" {
		t.Error(d)
	}
}
