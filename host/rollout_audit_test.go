package host_test

import (
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/plugins/abi"
)

// forgetful is a guest that says it keeps no state and adds the number of its
// calls to its scores for badSeed: two instances do not agree.
func forgetful() []byte {
	const calls = 1 // a global; 0 is the allocator's
	return Guest{
		Name:   "forgetful",
		Before: func(m *Module) { m.Global(0) },
		Score: Cat(
			GetGlobal(calls), I32(1), Op(I32Add), SetGlobal(calls),
			Column(0, Op(F64Neg), GetGlobal(calls), Get(0), LoadI64(abi.OffSeed), I64(badSeed), Op(0x51), Op(I32Mul), Op(F64ConvertU), Op(F64Add)),
		),
		ScoreTypes: ColumnTypes,
	}.Bytes()
}

// distrusting is a running bench with revision 2 of low and 3 of forgetful.
func distrusting(t *testing.T, dir string) *bench {
	t.Helper()
	b := openBench(t, dir, probing(time.Minute))
	b.upload(t, "low", lowest())
	b.upload(t, "forgetful", forgetful())
	b.put(t, "default", spec("module:low"))
	b.put(t, "default", spec("module:forgetful"))
	b.activate(t, "default", 2)
	b.run(t)
	return b
}

func TestAModuleThatIsNotDeterministicTripsItsRevision(t *testing.T) {
	b := distrusting(t, t.TempDir())
	b.activate(t, "default", 3)
	testkit.Until(t, "the audit trips it", func() bool {
		for range 500 {
			b.decide(t, "", badSeed)
		}
		return b.states(t, "default")[3] == policy.Tripped
	})
	testkit.Until(t, "the history has it", func() bool { return b.last(t).What == "trip" })
	c := b.last(t)
	if c.Who != "guard" || !strings.Contains(c.Why, "E_NONDETERMINISTIC") {
		t.Errorf("history: got %+v", c)
	}
	if d, _ := b.decide(t, "", 1); d.Totals[3] == -3 && b.show(t, "default").Problem == "" {
		t.Error("the module still decides")
	}
	b.activate(t, "default", 3) // an operator knows better
	if p := b.show(t, "default"); p.Problem != "" || b.states(t, "default")[3] != policy.Active {
		t.Errorf("after the operator's activation: %q, %s", p.Problem, b.states(t, "default")[3])
	}
}

func TestAModuleThatIsNotDeterministicEndsItsCanary(t *testing.T) {
	b := distrusting(t, t.TempDir())
	b.canary(t, host.CanarySpec{Revision: 3, Percent: 100})
	testkit.Until(t, "the audit ends the canary", func() bool {
		for range 500 {
			b.decide(t, "", badSeed)
		}
		return b.show(t, "default").Canary == nil
	})
	testkit.Until(t, "the history has it", func() bool { return b.last(t).What == "rollback" })
	if c := b.last(t); c.Who != "guard" || !strings.Contains(c.Why, "E_NONDETERMINISTIC") {
		t.Errorf("history: got %+v", c)
	}
}
