package host_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
)

// tidying is a scorer whose every row gets the number of times that rp_idle was
// called on the instance.
func tidying(perCall Code) Guest {
	return Guest{
		Before: func(m *Module) { m.Global(0) }, ScoreTypes: ColumnTypes,
		Idle:  Cat(GetGlobal(1), I32(1), Op(I32Add), SetGlobal(1)),
		Score: Cat(perCall, Constant(GetGlobal(1), Op(F64ConvertU))),
		// The count is no answer to a frame: only a module that keeps state may.
		Extra: `,"state":"instance","limits":{"memory_pages":1000,"fuel_base":1000000}`,
	}
}

// idled calls until rp_idle was seen to have run, and returns after how many.
func idled(t *testing.T, s policy.Scorer, most int) int {
	t.Helper()
	for i := range most {
		got, _, err := score(s, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got[0] > 0 {
			return i
		}
	}
	t.Fatalf("rp_idle was not called in %d calls", most)
	return 0
}

func TestIdleIsCalledAfterAThousandCalls(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Instances = 2 })
	s := stage(t, r, tidying(nil).Bytes(), "")
	if n := idled(t, s, 500_000); n < 1000 {
		t.Errorf("after %d calls, want 1,000 of one instance or more", n)
	}
}

func TestIdleIsCalledAfterAMegabyteOfGrowth(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Instances = 2 })
	grow := Cat(I32(1), Op(0x40, 0), Op(Drop))
	s := stage(t, r, tidying(grow).Bytes(), "")
	if n := idled(t, s, 500_000); n < 16 {
		t.Errorf("after %d calls of a page each, want 16 or more", n)
	}
}

func TestTheOnlyInstanceIsTidiedUpTooButLater(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Instances = 1 })
	s := stage(t, r, tidying(nil).Bytes(), "")
	if n := idled(t, s, 500_000); n < 4000 {
		t.Errorf("after %d calls, want 4,000: nobody else is idle meanwhile", n)
	}
}

func TestAFaultWhileTidyingUpIsNoRequestsFault(t *testing.T) {
	for name, bad := range map[string]Code{"traps": Op(Unreachable), "never ends": Loop(Br(0))} {
		t.Run(name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			cfg := host.DefaultConfig()
			cfg.PoolWait, cfg.CallDeadline = cfg.PoolWait*100, cfg.CallDeadline*100
			rt, err := host.New(cfg, slog.New(slog.DiscardHandler), reg)
			if err != nil {
				t.Fatal(err)
			}
			g := Guest{Idle: bad}
			s, err := loaded(t.Context(), rt, "module:test", g.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			for range 6000 {
				if _, _, err := score(s, 1); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the fault is counted", func() bool { return values(t, reg)["routerd_plugin_idle_faults_total{test}"] >= 1 })
			if err := errors.Join(s.Close(), rt.Close()); err != nil {
				t.Error(err)
			}
			if u := rt.Usage(); u != (host.Usage{}) {
				t.Errorf("usage after close: %+v", u)
			}
		})
	}
}

func TestW11_GuestsThatNeverFreeAreReplacedInTime(t *testing.T) {
	// Takes 1 MiB in each call and traps when it gets none.
	take := Cat(I32(16), Op(0x40, 0), I32(-1), Op(I32Eq), If(Op(Unreachable)))
	g := Guest{ScoreTypes: ColumnTypes, Score: Cat(take, Column(0, Op(F64Neg)))}
	g.Extra = `,"limits":{"memory_pages":1024,"fuel_base":1000000}`
	rt, reg, _ := told(t)
	l := rt.Limits()
	l.PoolWait = 5 * time.Second
	rt.SetLimits(l)
	s := stage(t, rt, g.Bytes(), "")
	for i := range 5000 {
		if _, _, err := score(s, 4); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if m := rt.Usage().Memory; m > 4*1024<<16 {
			t.Fatalf("call %d: %d bytes of guest memory", i, m)
		}
	}
	if n := values(t, reg)["routerd_plugin_recycled_total{test}"]; n < 5000/70 {
		t.Errorf("%v instances were replaced, want one in about 63 calls", n)
	}
}

func TestAGuestThatHasGrownUpIsKept(t *testing.T) {
	// Grows twice, then never again, to the last page that it may have.
	grow := Cat(Op(0x3f, 0), I32(64), Op(0x49), If(I32(30), Op(0x40, 0), Op(Drop))) // memory.size < 64
	g := Guest{ScoreTypes: ColumnTypes, Score: Cat(grow, Column(0, Op(F64Neg))), Extra: `,"limits":{"fuel_base":1000000}`}
	rt, reg, _ := told(t)
	s := stage(t, rt, g.Bytes(), "")
	for range 500 {
		if _, _, err := score(s, 4); err != nil {
			t.Fatal(err)
		}
	}
	if n := values(t, reg)["routerd_plugin_recycled_total{test}"]; n != 0 {
		t.Errorf("%v instances were replaced, want none", n)
	}
}
