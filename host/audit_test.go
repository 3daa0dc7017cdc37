package host_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// audited is a runtime with metrics, and a stage of a kind whose failed audits
// arrive at the channel.
func audited[S policy.Stage](t *testing.T, kind abi.Kind, g Guest) (S, *prometheus.Registry, <-chan *policy.Fault) {
	t.Helper()
	reg := prometheus.NewRegistry()
	rt, err := host.New(host.DefaultConfig(), slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
		if u := rt.Usage(); u != (host.Usage{}) {
			t.Errorf("usage after the test: %+v", u)
		}
	})
	s := staged[S](t, rt, kind, g.Bytes(), "")
	failed := make(chan *policy.Fault, 64)
	any(s).(host.Audited).SetAuditFailed(func(f *policy.Fault) { failed <- f })
	return s, reg, failed
}

func audits(t *testing.T, reg *prometheus.Registry, result string) float64 {
	t.Helper()
	return values(t, reg)["routerd_plugin_audits_total{test,"+result+"}"]
}

// after changes an answer from the n-th call of an instance on, n large enough
// for the self-test not to see it.
func after(n int32, then, before Code) Code {
	return Cat(
		GetGlobal(1), I32(1), Op(I32Add), SetGlobal(1),
		GetGlobal(1), I32(n), Op(I32GeU), If(then), before,
	)
}

func withCount(g Guest) Guest {
	g.Before = func(m *Module) { m.Global(0) }
	return g
}

func TestAuditOfAGoodModuleFindsEqualBits(t *testing.T) {
	s, reg, failed := audited[policy.Scorer](t, abi.KindScorer, formula())
	tab := liveTable(s.Columns(), 20)
	scores := make([]float64, 20)
	for range 4000 {
		if _, err := s.Score(context.Background(), tab, scores, &policy.StageReport{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "an audit", func() bool { return audits(t, reg, "equal") >= 1 })
	if n := len(failed); n != 0 || audits(t, reg, "unequal") != 0 {
		t.Errorf("%d failed audits: %v", n, <-failed)
	}
}

func TestAuditFindsOtherBitsOfEachKind(t *testing.T) {
	const calls = 500
	least := Column(0, Op(F64Neg))
	ctx := context.Background()
	for kind, g := range map[abi.Kind]Guest{
		abi.KindScorer:     {Score: after(calls, Cat(Constant(F64(1)), Op(Return)), least), ScoreTypes: ColumnTypes},
		abi.KindLoraScorer: {Lora: after(calls, Cat(I32(1), Op(Return)), least)},
		abi.KindFilter:     {Filter: after(calls, SetMask(1, 0), I32(0))},
		abi.KindPicker:     {Pick: after(calls, Cat(PickRow(I32(2)), Op(Return)), FirstKept())},
		abi.KindPolicy:     {Whole: after(calls, Cat(Cat(least, Op(Drop)), PickRow(I32(2)), Op(Return)), Cat(least, Op(Drop), PickRow(I32(0))))},
	} {
		t.Run(string(kind), func(t *testing.T) {
			g.Kinds = []string{string(kind)}
			s, reg, failed := audited[policy.Stage](t, kind, withCount(g))
			tab := tableOf(s, 3)
			tab.Partition.Model = "m"
			var rep policy.StageReport
			call := func() (err error) {
				switch s := s.(type) {
				case policy.Filter:
					_, err = s.Filter(ctx, tab, []byte{1, 1, 0}, &rep)
				case policy.Scorer:
					_, err = s.Score(ctx, tab, make([]float64, 3), &rep)
				case policy.Picker:
					_, _, err = s.Pick(ctx, tab, make([]float64, 3), &rep)
				case policy.Whole:
					_, _, err = s.Decide(ctx, tab, make([]float64, 3), keepAll(3), &rep)
				}
				return err
			}
			eventually(t, "an audit that finds other bits", func() bool { // audits rest, so that calls must go on
				for range 2000 {
					if err := call(); err != nil {
						t.Fatal(err)
					}
				}
				return len(failed) > 0
			})
			f := <-failed
			if f.Code != string(abi.ENondeterministic) || f.Reason != "nondeterministic" || f.Stage != "module:test" || !f.Counts || !strings.Contains(f.Detail, "3 rows") {
				t.Errorf("got %+v", f)
			}
			if values(t, reg)["routerd_plugin_faults_total{test,nondeterministic}"] == 0 {
				t.Error("the fault is not counted")
			}
		})
	}
}

func TestAuditsOwnFaultIsCountedAndNoMore(t *testing.T) {
	// Traps in the first calls of an instance once it is told to: the seed 666
	// never comes before call 500 of the live instance.
	g := withCount(Guest{ScoreTypes: ColumnTypes, Score: Cat(
		GetGlobal(1), I32(1), Op(I32Add), SetGlobal(1),
		Get(0), LoadI64(abi.OffSeed), I64(666), Op(0x51),
		If(GetGlobal(1), I32(500), Op(I32LtU), If(Op(Unreachable))),
		Column(0, Op(F64Neg)),
	)})
	s, reg, failed := audited[policy.Scorer](t, abi.KindScorer, g)
	tab := table(s, 3)
	call := func() {
		if _, err := s.Score(context.Background(), tab, make([]float64, 3), &policy.StageReport{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 1500 {
		call()
	}
	tab.Seed = 666
	eventually(t, "an audit that traps", func() bool { // audits rest, so that calls must go on
		for range 2000 {
			call()
		}
		return audits(t, reg, "fault") >= 1
	})
	if n := len(failed); n != 0 {
		t.Errorf("%d audits failed: %v", n, <-failed)
	}
}

func TestQuietCallsAndModulesWithStateAreNotAudited(t *testing.T) {
	for name, tc := range map[string]struct {
		extra string
		quiet bool
	}{"quiet": {"", true}, "state instance": {`,"state":"instance"`, false}} {
		t.Run(name, func(t *testing.T) {
			s, reg, _ := audited[policy.Scorer](t, abi.KindScorer, Guest{Extra: tc.extra})
			tab := table(s, 3)
			tab.Quiet = tc.quiet
			for range 3000 {
				if _, err := s.Score(context.Background(), tab, make([]float64, 3), &policy.StageReport{}); err != nil {
					t.Fatal(err)
				}
			}
			for name := range values(t, reg) {
				if strings.HasPrefix(name, "routerd_plugin_audits_total") {
					t.Errorf("got %s", name)
				}
			}
		})
	}
}

func TestAStageMayCloseWhileItsAuditRuns(t *testing.T) {
	reg := prometheus.NewRegistry()
	rt, err := host.New(host.DefaultConfig(), slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	// Never ends on a fresh instance: the audit runs until it is stopped or its
	// fuel is gone.
	g := withCount(Guest{ScoreTypes: ColumnTypes, Score: Cat(
		GetGlobal(1), I32(1), Op(I32Add), SetGlobal(1),
		Get(0), LoadI64(abi.OffSeed), I64(666), Op(0x51),
		If(GetGlobal(1), I32(500), Op(I32LtU), If(Loop(Br(0)))),
		Column(0, Op(F64Neg)),
	)})
	s, err := loaded(t.Context(), rt, "module:test", g.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	tab := table(s, 3)
	for i := range 6000 {
		if i == 1500 {
			tab.Seed = 666
		}
		if _, err := s.Score(context.Background(), tab, make([]float64, 3), &policy.StageReport{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := rt.Close(); err != nil {
		t.Error(err)
	}
	if u := rt.Usage(); u != (host.Usage{}) {
		t.Errorf("usage after close: %+v", u)
	}
}
