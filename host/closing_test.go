package host_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
)

// lasting is a loop of n loads over local l, which miss all caches.
func lasting(l uint64, n int32) Code {
	return Cat(I32(0), Set(l), Loop(
		Get(l), I32(506_816), Op(I32Mul), I32(33_554_431&^63), Op(I32And), Load32(0), Op(Drop),
		Get(l), I32(1), Op(I32Add), Tee(l), I32(n), Op(I32LtU), BrIf(0)))
}

// prompt fails when end takes longer than a fraction of what it would have to
// wait for.
func prompt(t *testing.T, what string, work time.Duration, end func() error) {
	t.Helper()
	began := time.Now()
	if err := end(); err != nil {
		t.Error(err)
	}
	took := time.Since(began)
	t.Logf("%s took %s; the work under way takes %s", what, took, work)
	if took > work/3 {
		t.Errorf("%s took %s, want no wait for the %s of work under way", what, took, work)
	}
}

func nothingHeld(t *testing.T, r *host.Runtime) {
	t.Helper()
	eventually(t, "nothing is held", func() bool { return r.Usage() == (host.Usage{}) })
}

// inTheMaking is a stage whose pool is setting an instance up, and about how long
// that takes.
func inTheMaking(t *testing.T) (*host.Runtime, policy.Scorer, time.Duration) {
	t.Helper()
	r := newRuntime(t, func(c *host.Config) { c.Instances = 4 })
	g := Guest{Pages: 560, Extra: `,"limits":{"memory_pages":1024}`, Initialize: lasting(0, 8_000_000)}
	began := time.Now()
	s, err := loaded(t.Context(), r, "module:test", g.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	setUp := time.Since(began) / 2
	one, other := host.Take(s), host.Take(s)
	eventually(t, "another is in the making", func() bool { return r.Usage().Instances == 3 })
	one()
	other()
	return r, s, setUp
}

func TestClosingAPoolWaitsForNoSetUp(t *testing.T) {
	r, s, setUp := inTheMaking(t)
	prompt(t, "closing the stage", setUp, s.Close)
	prompt(t, "and until its last instance has gone", setUp, func() error { nothingHeld(t, r); return nil })
}

func TestClosingAPoolWaitsForNoIdleCall(t *testing.T) {
	r := newRuntime(t)
	g := Guest{Pages: 560, Extra: `,"limits":{"memory_pages":1024}`, Idle: lasting(0, 2_500_000)}
	s, err := loaded(t.Context(), r, "module:test", g.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; host.Tidying(s) == 0; i++ {
		if _, _, err := score(s, 1); err != nil || i > 5000 {
			t.Fatal(fmt.Errorf("after %d calls: %w", i, err))
		}
	}
	began := time.Now()
	eventually(t, "rp_idle has ended", func() bool { return host.Tidying(s) == 0 })
	idle := time.Since(began)
	for host.Tidying(s) == 0 {
		if _, _, err := score(s, 1); err != nil {
			t.Fatal(err)
		}
	}
	prompt(t, "closing the stage", idle, s.Close)
	nothingHeld(t, r)
}

func TestClosingTheRuntimeStopsSetUps(t *testing.T) {
	r, s, setUp := inTheMaking(t)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prompt(t, "closing the runtime", setUp, r.Close)
	if u := r.Usage(); u != (host.Usage{}) {
		t.Errorf("usage after close: %+v", u)
	}
}
