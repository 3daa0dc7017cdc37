//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// answeredWithin is what a request with a hostile call may take (W1).
const answeredWithin = 30 * time.Millisecond

// hostileModules must be refused when they are loaded.
func hostileModules() []badModule {
	trick := func(bytes ...byte) []byte { return Guest{Score: Cat(Op(bytes...), I32(0))}.Bytes() }
	divide := Constant(F64(0), F64(0), Op(F64Div))
	return []badModule{
		{"huge table", Guest{Before: func(m *Module) { m.Table(100_000_000, -1) }}.Bytes(), sectionWalk, abi.ELimit},
		{"memory above the limit", Guest{Pages: 65}.Bytes(), "", abi.ELimit},
		{"SIMD sub-opcode in three bytes", trick(0xfd, 0x8c, 0x80, 0x00), "", abi.EParse},
		{"SIMD sub-opcode whose second byte is not 1", trick(0xfd, 0x80, 0x02), "", abi.EParse},
		{"re-exported import", Guest{
			Skip: map[string]bool{"rp_score": true}, Imports: [][4]string{{"wasi_snapshot_preview1", "proc_raise", "i", "i"}},
			After: func(m *Module) { m.Export("rp_score", 0) },
		}.Bytes(), sectionWalk, abi.EExport},
		{"always loops", Guest{Score: Cat(Loop(Br(0)), I32(0))}.Bytes(), host.StepSelfTest, abi.EFuel},
		{"always traps", Guest{Score: Op(Unreachable)}.Bytes(), host.StepSelfTest, abi.ETrap},
		{"always NaN", Guest{Score: divide, ScoreTypes: ColumnTypes}.Bytes(), host.StepSelfTest, abi.ENaN},
		{"_start", Guest{After: func(m *Module) { m.Export("_start", m.Func("", "", "")) }}.Bytes(), sectionWalk, abi.EExport},
	}
}

func TestHostileModulesAreRefusedAtLoad(t *testing.T) {
	r := startRouter(t, three(t))
	before := r.policy("default")
	for _, m := range hostileModules() {
		began := time.Now()
		e := refuseModule(t, r, m)
		t.Logf("%s: %s at %s after %s: %s", m.name, e.Code, e.Details.Step, time.Since(began), e.Details.Item)
		if e.Code != string(m.code) || e.Details.Step == "" || m.step != "" && e.Details.Step != m.step {
			t.Errorf("%s: got %+v, want %s at step %q", m.name, e, m.code, m.step)
		}
	}
	if diff := cmp.Diff(before, r.policy("default")); diff != "" {
		t.Errorf("the policy changed (-before +after)\n%s", diff)
	}
}

// hostileCall is a guest that loads well and goes wrong in a call.
type hostileCall struct {
	name, reason string
	guest        Guest
}

func hostileCalls() []hostileCall {
	chase := armed(Guest{Pages: 64}, Loop(
		Get(1), I32(1664525), Op(I32Mul), I32(1013904223), Op(I32Add), Set(1),
		Get(1), I32(0x3ffff8), Op(I32And), Load32(0), Get(1), Op(I32Add), Set(1), Br(0)))
	calls := armed(Guest{Before: func(m *Module) {
		for range 39 {
			m.Func("", "", "", Call(m.Next()+1), Call(m.Next()+1))
		}
		m.Func("", "", "")
	}}, Call(0))
	recursion := armed(Guest{Before: func(m *Module) { m.Func("", "", "", Call(m.Next())) }}, Call(0))
	table := armed(Guest{Before: func(m *Module) { m.Table(8, -1) }}, Cat(
		Op(0xd0, 0x70), I32(50_000), Op(0xfc, 15, 0), I32(-1), Op(I32Eq), If(Op(Unreachable))))
	hostCalls := armed(Guest{Imports: [][4]string{{"routerd_v1", "log", "iii", ""}}, Extra: `,"imports":["log"]`},
		Loop(I32(1), I32(0), I32(8), Call(0), Br(0)))
	grow := armed(Guest{Extra: `,"limits":{"memory_pages":64,"fuel_base":1000000}`}, Cat(
		Block(Loop(I32(1), Op(0x40, 0), I32(-1), Op(I32Eq), BrIf(1), Br(0))), Op(Unreachable)))
	return []hostileCall{
		{"endless loop", "fuel", armed(Guest{}, Loop(Br(0)))},
		{"exponential calls", "fuel", calls},
		{"random pointer chase over all memory", "fuel", chase},
		{"deep recursion", "fuel", recursion},
		{"table that is grown", "unreachable", table},
		{"memory that is grown to its limit", "unreachable", grow},
		{"NaN for all", "nan", armed(Guest{}, Cat(Constant(F64(0), F64(0), Op(F64Div)), Op(Return)))},
		{"unreachable", "unreachable", armed(Guest{}, Op(Unreachable))},
		{"load out of bounds", "out_of_bounds", armed(Guest{}, Cat(I32(-4), Load32(0), Op(Drop)))},
		{"division by zero", "divide_by_zero", armed(Guest{}, Cat(I32(1), I32(0), Op(I32DivU), Op(Drop)))},
		{"nothing written", "unwritten", armed(Guest{}, Cat(I32(0), Op(Return)))},
		{"host-call loop", "fuel", hostCalls},
	}
}

// hostileOnce sends a request that makes the active guest go wrong and returns
// what it took.
func hostileOnce(t *testing.T, r *router, reason string) time.Duration {
	t.Helper()
	began := time.Now()
	status, head, answer := r.complete(armedAt)
	took := time.Since(began)
	if status != http.StatusOK {
		t.Fatalf("status %d, want 200 by the fallback: %s", status, answer)
	}
	d := r.decision(head)
	if d.Pick.By != "fallback" || d.Fault == nil || d.Fault.Reason != reason {
		t.Errorf("decided by %s with fault %+v, want the fallback after %s", d.Pick.By, d.Fault, reason)
	}
	return took
}

// wellDecided sends n good requests, which the active guest must decide.
func wellDecided(t *testing.T, r *router, n int) {
	t.Helper()
	for i := range n {
		status, head, answer := r.complete(2)
		if status != http.StatusOK || head.Get("x-routerd-worker") != highest {
			t.Fatalf("good request %d: status %d from %q, want 200 from %s: %s", i, status, head.Get("x-routerd-worker"), highest, answer)
		}
		if d := r.decision(head); d.Pick.By != "policy" || d.Fault != nil {
			t.Fatalf("good request %d: decided by %s with fault %+v, want the policy", i, d.Pick.By, d.Fault)
		}
	}
}

func median3(a, b, c time.Duration) time.Duration { return max(min(a, b), min(max(a, b), c)) }

// With the guard off each bad call is answered by the fallback, for ever, and
// every other call by the policy.
func TestW5_HostileCallsGuardOff(t *testing.T) {
	r := startRouter(t, three(t)+"plugins: {guard: \"off\", call_deadline: 1s}\n")
	for i, c := range hostileCalls() {
		t.Run(c.name, func(t *testing.T) {
			revision := r.revise(fmt.Sprintf("hostile-%d", i), c.guest.Bytes())
			r.activate(revision)
			var took []time.Duration
			for range 6 {
				wellDecided(t, r, 9)
				took = append(took, hostileOnce(t, r, c.reason))
			}
			middle := median3(took[1], took[2], took[3])
			t.Logf("answered after %s (middle %s)", took, middle)
			if middle > answeredWithin*patience {
				t.Errorf("answered after %s, want within %s (asserted at %d times)", middle, answeredWithin, patience)
			}
			if got := r.state(revision); got != "active" {
				t.Errorf("the revision is %s with the guard off, want active", got)
			}
		})
	}
}

// With the guard on the third bad call in a row trips the revision: the
// fallback answers all, and the policy's view says so.
func TestO5_HostileCallsGuardOn(t *testing.T) {
	r := startRouter(t, three(t)+"plugins: {call_deadline: 1s}\n")
	good := r.revise("good", byID("good", true))
	for i, c := range hostileCalls() {
		t.Run(c.name, func(t *testing.T) {
			revision := r.revise(fmt.Sprintf("hostile-%d", i), c.guest.Bytes())
			r.activate(revision)
			wellDecided(t, r, 2)
			for range 3 {
				hostileOnce(t, r, c.reason)
			}
			if got := r.state(revision); got != "tripped" {
				t.Errorf("the revision is %s after three faults in a row, want tripped", got)
			}
			for range 5 {
				status, head, answer := r.complete(armedAt)
				if status != http.StatusOK {
					t.Fatalf("status %d after the trip, want 200: %s", status, answer)
				}
				if d := r.decision(head); d.Pick.By != "fallback" {
					t.Errorf("decided by %s after the trip, want the fallback", d.Pick.By)
				}
			}
			// Another revision is not tripped, and the same one gets another
			// chance when it is activated anew.
			r.activate(good)
			wellDecided(t, r, 2)
			r.activate(revision)
			wellDecided(t, r, 2)
		})
	}
}

// W1 as it is written: a policy that loops for ever under a budget of 5 ms.
func TestW1_EndlessLoop(t *testing.T) {
	loop := armed(Guest{Extra: `,"limits":{"fuel_base":1000000000}`}, Loop(Br(0)))
	for reason, config := range map[string]string{
		"deadline": "plugins: {call_deadline: 5ms, fuel_cap: 1000000000, guard: \"off\"}\n",
		"fuel":     "plugins: {call_deadline: 10s, fuel_cap: 1000000, guard: \"off\"}\n",
	} {
		t.Run(reason, func(t *testing.T) {
			r := startRouter(t, three(t)+config)
			r.activate(r.revise("loop", loop.Bytes()))
			wellDecided(t, r, 5)
			for range 5 {
				took := hostileOnce(t, r, reason)
				t.Logf("answered after %s (stated: %s)", took, answeredWithin)
				if took > answeredWithin*patience {
					t.Errorf("answered after %s, want within %s (asserted at %d times)", took, answeredWithin, patience)
				}
			}
			wellDecided(t, r, 100)
			_, metrics := r.raw("GET", "/metrics", nil)
			if want := fmt.Sprintf(`routerd_plugin_faults_total{plugin="test",reason=%q} 5`, reason); !strings.Contains(string(metrics), want) {
				t.Errorf("the metrics lack %s", want)
			}
			r.idle("m", 5*time.Second)
		})
	}
}
