package host_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// deep adds function 0, which calls itself as often as its argument says with a
// frame of 16 bytes times the values that only its cold path uses.
func deep(values int) func(m *Module) {
	cold := Code{}
	for range values {
		cold = append(cold, Cat(Get(0), Op(0xfd, 0x0f))...) // i8x16.splat
	}
	cold = append(cold, Cat(I32(0), Call(0))...)
	for range values - 1 {
		cold = append(cold, 0xfd, 0x50) // v128.or
	}
	cold = append(cold, Cat(Op(0xfd, 0x53), SetGlobal(0))...) // v128.any_true
	return func(m *Module) {
		m.Func("i", "", "", Get(0), I32(-1), Op(I32Eq), If(cold), Get(0), If(Get(0), I32(1), Op(I32Sub), Call(0)))
	}
}

// wide adds function 0, which recurses for ever with a frame of 4 KiB for each
// 10 bytes of body: 64 values of 16 bytes that results of calls are.
func wide(groups int) func(m *Module) {
	return func(m *Module) {
		v16, v64 := strings.Repeat("v", 16), strings.Repeat("v", 64)
		var zero, code Code
		for range 16 {
			zero = append(zero, Cat(I32(1), Op(0xfd, 17))...)
		}
		for range groups {
			code = append(code, Cat(Call(1), Call(1), Call(1), Call(1))...)
		}
		code = append(code, Call(0)...)
		for range groups {
			code = append(code, Call(2)...)
		}
		m.Func("", "", "", code)
		m.Func("", v16, "", zero)
		m.Func(v64, "", "")
	}
}

func TestStackOfACallIsBounded(t *testing.T) {
	endless := Cat(I32(1<<30), Call(0))
	for name, g := range map[string]Guest{
		"recursion that never ends":           {Before: deep(8000), Score: sparing(endless)},
		"recursion that returns":              {Before: deep(8000), Score: sparing(Cat(I32(60), Call(0)))},
		"frames far larger than their bodies": {Before: wide(1000), Score: sparing(Call(0))},
	} {
		t.Run(name, func(t *testing.T) {
			g.ScoreTypes, g.Extra = ColumnTypes, `,"limits":{"fuel_base":10000000}`
			s := stage(t, newRuntime(t), g.Bytes(), "")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := s.Score(context.Background(), badTable(s, 5), make([]float64, 5), &policy.StageReport{})
			runtime.ReadMemStats(&after)
			var f *policy.Fault
			if !errors.As(err, &f) || f.Reason != "stack" || f.Code != string(abi.ETrap) || !f.Counts {
				t.Fatalf("got %v, want a fault with reason stack", err)
			}
			// All stacks on the way up together; the engine's own bound would be 100 MB
			// for the last alone.
			if made := (after.TotalAlloc - before.TotalAlloc) >> 20; made > 48 {
				t.Errorf("%d MiB were allocated, want at most 48", made)
			}
			if _, _, err := score(s, 5); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

func TestStackOfSetUpIsBounded(t *testing.T) {
	le := refused(t, newRuntime(t), Guest{Before: deep(8000), Initialize: Cat(I32(1<<30), Call(0))}.Bytes(), "")
	if le.Code != abi.EInitTrap || le.Step != host.StepStart || !strings.Contains(le.Allowed, "native stack") {
		t.Errorf("got %v, want E_INIT_TRAP that names the stack", le)
	}
}

func TestDeepRecursionOfSmallFramesIsNoFault(t *testing.T) {
	g := Guest{ScoreTypes: ColumnTypes, Before: deep(1), Score: Cat(I32(5000), Call(0), Column(0, Op(F64Neg)))}
	if _, _, err := score(stage(t, newRuntime(t), g.Bytes(), ""), 5); err != nil {
		t.Error(err)
	}
}
