package host_test

import (
	"context"
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// keeping is a scorer that keeps a count: every row gets the number of the
// call.
func keeping() Guest {
	return Guest{Before: func(m *Module) { m.Global(0) }, ScoreTypes: ColumnTypes, Score: counting(), Extra: `,"state":"instance"`}
}

func TestStateIsKeptPerPartition(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Instances = 1 })
	s := stage(t, r, keeping().Bytes(), "")
	if u := r.Usage(); u.Pools != 1 || u.Instances != 0 {
		t.Errorf("before the first call: got %+v, want no instance: the self-test's state is no partition's", u)
	}
	call := func(model string) float64 {
		t.Helper()
		tab := table(s, 2)
		tab.Partition = fleet.PartitionKey{Model: model}
		got, _ := scoresOf(t, s, tab)
		return got[0]
	}
	for i, c := range []struct {
		model string
		want  float64
	}{{"a", 1}, {"a", 2}, {"b", 1}, {"a", 3}, {"b", 2}} {
		if got := call(c.model); got != c.want {
			t.Errorf("call %d, partition %s: got %v, want %v", i, c.model, got, c.want)
		}
	}
	if u := r.Usage(); u.Pools != 3 || u.Instances != 2 || u.Modules != 1 {
		t.Errorf("got %+v, want a pool for each partition beside the stage's", u)
	}
	other := stage(t, r, keeping().Bytes(), "")
	tab := table(other, 1)
	tab.Partition.Model = "b"
	if got, _ := scoresOf(t, other, tab); got[0] != 3 {
		t.Errorf("another stage of the module: got %v, want the partition's state", got[0])
	}
}

func TestTheStateOfAForgottenPartitionIsGivenUp(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Instances = 1 })
	s := stage(t, r, keeping().Bytes(), "")
	call := func(model string) float64 {
		t.Helper()
		tab := table(s, 1)
		tab.Partition = fleet.PartitionKey{Model: model}
		got, _ := scoresOf(t, s, tab)
		return got[0]
	}
	call("a")
	call("b")
	for range 2 { // the second time there is nothing left
		if err := host.ForgetPartition(r, fleet.PartitionKey{Model: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "nothing of it is left", func() bool { u := r.Usage(); return u.Pools == 2 && u.Instances == 1 })
	if a, b := call("a"), call("b"); a != 1 || b != 2 {
		t.Errorf("got %v and %v, want that one begins anew and the other goes on", a, b)
	}
}

func TestAPartitionsFirstCallWaitsAsInAnEmptyPool(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.PoolWait = 0 })
	g := keeping() // and takes its time to be set up
	g.Bind = Cat(Loop(Get(2), I32(1), Op(I32Add), Tee(2), I32(15_000_000), Op(I32LtU), BrIf(0)), I32(0))
	s := stage(t, r, g.Bytes(), "")
	if f := faulted(t, s, 1); f.Reason != "pool_wait" || f.Counts {
		t.Errorf("got %+v, want pool_wait that does not count", f)
	}
	eventually(t, "the partition's first instance", func() bool {
		_, err := s.Score(context.Background(), table(s, 1), make([]float64, 1), &policy.StageReport{})
		return err == nil
	})
}

func TestStateThatIsNotDeclaredIsRefused(t *testing.T) {
	g := keeping()
	g.Extra = ""
	if le := refused(t, newRuntime(t), g.Bytes(), ""); le.Code != abi.ENondeterministic {
		t.Errorf("got %v, want %s", le, abi.ENondeterministic)
	}
}
