package host_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// pageful takes a page where the seed is 666; then it does what refused says
// when it got none.
func pageful(refused Code) Guest {
	take := Cat(I32(1), Op(0x40, 0), I32(-1), Op(I32Eq), If(refused))
	return Guest{Pages: 8, ScoreTypes: ColumnTypes, Score: sparing(take)}
}

func TestAGrowthThatTheHostRefusesIsNoGuestsFault(t *testing.T) {
	for name, refused := range map[string]Code{
		"traps": Op(Unreachable), "says an error": Cat(I32(-3), Op(Return)), "writes nothing": Cat(I32(0), Op(Return)),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, func(c *host.Config) { c.MemoryLimit, c.Instances = 16*64<<10, 2 })
			s := stage(t, r, pageful(refused).Bytes(), "") // two of 8 pages
			_, err := s.Score(context.Background(), badTable(s, 3), make([]float64, 3), &policy.StageReport{})
			f, ok := errors.AsType[*policy.Fault](err)
			if !ok || f.Reason != "memory_limit" || f.Counts || f.Code != string(abi.EPool) || !strings.Contains(f.Detail, "plugins.memory_limit") {
				t.Errorf("got %+v, want memory_limit that does not count", err)
			}
			l := r.Limits()
			l.MemoryLimit *= 2
			r.SetLimits(l)
			eventually(t, "an answer once there is memory", func() bool {
				_, err := s.Score(context.Background(), badTable(s, 3), make([]float64, 3), &policy.StageReport{})
				return err == nil
			})
		})
	}
}

func TestAGrowthOverTheGuestsOwnMostIsItsFault(t *testing.T) {
	r := newRuntime(t)
	g := pageful(Op(Unreachable))
	g.MaxPages = 8
	s := stage(t, r, g.Bytes(), "")
	_, err := s.Score(context.Background(), badTable(s, 3), make([]float64, 3), &policy.StageReport{})
	if f, ok := errors.AsType[*policy.Fault](err); !ok || f.Reason != "unreachable" || !f.Counts {
		t.Errorf("got %+v, want unreachable that counts", err)
	}
}

func TestAnAuditWithoutMemoryIsSkipped(t *testing.T) {
	// Answers otherwise where it gets no page for the 500th call on.
	more := Cat(I32(1), Op(0x40, 0), I32(-1), Op(I32Eq), If(Constant(F64(1)), Op(Return)))
	g := withCount(Guest{Pages: 8, ScoreTypes: ColumnTypes, Score: after(500, more, Column(0, Op(F64Neg)))})
	reg := prometheus.NewRegistry()
	cfg := host.DefaultConfig()
	cfg.MemoryLimit, cfg.Instances = 25*64<<10, 2 // room for a third
	rt, err := host.New(cfg, slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := loaded(t.Context(), rt, "module:test", g.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan *policy.Fault, 64)
	s.(host.Audited).SetAuditFailed(func(f *policy.Fault) { failed <- f })
	eventually(t, "audits are skipped", func() bool {
		for range 1000 {
			if _, _, err := score(s, 3); err != nil {
				t.Fatal(err)
			}
		}
		return audits(t, reg, "skipped") > 2
	})
	if len(failed) > 0 || audits(t, reg, "unequal") > 0 {
		t.Errorf("%d audits failed: %v", len(failed), <-failed)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := rt.Close(); err != nil {
		t.Error(err)
	}
}

func TestAShadowMayNotTakeTheLastQuarterOfMemory(t *testing.T) {
	b := twoRevisions(t, t.TempDir())
	used := b.rt.Usage().Memory
	l := b.rt.Limits()
	l.MemoryLimit = used + used/8
	b.rt.SetLimits(l)
	_, err := b.source.SetShadow(context.Background(), "default", host.ShadowSpec{Revision: 3, Sample: 1}, "test")
	if err == nil || !strings.Contains(err.Error(), "plugins.memory_limit") {
		t.Errorf("got %v, want a refusal that names plugins.memory_limit", err)
	}
}
