package host_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
)

func TestAStageAsideMakesItsInstancesWhereItIsCalled(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Instances = 4 })
	g := Guest{ScoreTypes: ColumnTypes, Score: sparing(Op(Unreachable)), Extra: `,"limits":{"max_rows":5000}`, Pages: 8}
	s, err := loaded(host.Aside(t.Context()), r, "module:test", g.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if n := r.Usage().Instances; n != 1 {
		t.Errorf("%d instances, want one without a spare", n)
	}
	for range 3 {
		if _, _, err := score(s, 3); err != nil || r.Usage().Instances != 1 {
			t.Errorf("%v; %d instances, want 1 of which no other is made", err, r.Usage().Instances)
		}
		_, err := s.Score(t.Context(), badTable(s, 3), make([]float64, 3), &policy.StageReport{})
		if err == nil || r.Usage().Instances != 0 {
			t.Errorf("%v; %d instances, want a fault and none until the next call", err, r.Usage().Instances)
		}
	}
	if _, _, err := score(s, 3000); err != nil || r.Usage().Instances != 1 {
		t.Errorf("larger frames: %v; %d instances, want an answer at once by 1", err, r.Usage().Instances)
	}
}

func TestAStageAsideIsTidiedUpWhereItIsCalled(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Instances = 2 })
	s, err := loaded(host.Aside(t.Context()), r, "module:test", tidying(nil).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if n := idled(t, s, 2000); n != 1000 {
		t.Errorf("after %d calls, want 1,000 exactly", n)
	}
}

func TestASetUpAsideEndsWithItsCaller(t *testing.T) {
	r := newRuntime(t)
	g := Guest{Pages: 560, Extra: `,"limits":{"memory_pages":1024}`, Initialize: lasting(0, 8_000_000), ScoreTypes: ColumnTypes, Score: sparing(Op(Unreachable))}
	began := time.Now()
	s, err := loaded(host.Aside(t.Context()), r, "module:test", g.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	setUp := time.Since(began) / 2
	_, _ = s.Score(t.Context(), badTable(s, 3), make([]float64, 3), &policy.StageReport{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = s.Score(ctx, table(s, 3), make([]float64, 3), &policy.StageReport{}) })
	eventually(t, "a set-up", func() bool { return r.Usage().Instances == 1 })
	cancel()
	prompt(t, "the end of the call", setUp, func() error { wg.Wait(); return nil })
}

func TestAStageAsideSaysNothing(t *testing.T) {
	rt, reg, log := told(t)
	g := telling(hello(), tell(addMetric, 0, 1))
	g.Initialize = Cat(hello(), tell(addMetric, 0, 1))
	g.Idle = g.Initialize
	g.Extra = `,"state":"instance"` + g.Extra
	s, err := loaded(host.Aside(t.Context()), rt, "module:test", g.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for range 1500 { // as in a replay
		tab := table(s, 3)
		tab.Quiet = true
		if _, err := s.Score(t.Context(), tab, make([]float64, 3), &policy.StageReport{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got := log.all(); len(got) > 0 {
		t.Errorf("logged %s", got)
	}
	for name, v := range values(t, reg) {
		if strings.Contains(name, "served") && v != 0 {
			t.Errorf("%s is %v, want nothing counted", name, v)
		}
	}
}
