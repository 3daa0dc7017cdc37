package smith_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"

	"github.com/routerd/routerd/host/smith"
)

func TestEveryModuleIsValid(t *testing.T) {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(ctx)
	for seed := range uint64(1000) {
		o := smith.DefaultOptions()
		o.Unbounded = seed%2 == 0
		o.Size = 20 + int(seed%7)*50
		c, err := rt.CompileModule(ctx, smith.Module(rand.New(rand.NewPCG(seed, 7)), o))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if c.ExportedFunctions()["f0"] == nil || c.ExportedFunctions()["size"] == nil {
			t.Errorf("seed %d: exports %v", seed, c.ExportedFunctions())
		}
		c.Close(ctx)
	}
}

func TestEqualDrawsGiveEqualModules(t *testing.T) {
	module := func(seed uint64) []byte {
		return smith.Module(rand.New(rand.NewPCG(seed, 0)), smith.DefaultOptions())
	}
	if !bytes.Equal(module(1), module(1)) || bytes.Equal(module(1), module(2)) {
		t.Error("the bytes do not depend on the draws alone")
	}
}

func TestInstructionsAreThoseOfTheStandard(t *testing.T) {
	seen, spaces := map[string]string{}, map[byte]int{}
	for _, in := range smith.Instructions() {
		if other, twice := seen[string(in.Code)]; twice {
			t.Errorf("% x is %s and %s", in.Code, other, in.Name)
		}
		seen[string(in.Code)] = in.Name
		if in.Code[0] < 0xfc {
			spaces[0]++
		} else {
			spaces[in.Code[0]]++
		}
	}
	want := map[byte]int{0: 23 + 128, 0xfc: 8, 0xfd: 236}
	if diff := cmp.Diff(want, spaces); diff != "" {
		t.Errorf("instructions of each space (-want +got):\n%s", diff)
	}
	for code, name := range map[string]string{
		"\x28": "i32.load", "\x3e": "i64.store32", "\xc4": "i64.extend32_s", "\xfc\x07": "i64.trunc_sat_f64_u",
		"\xfd\xba\x01": "i32x4.dot_i16x8_s", "\xfd\xff\x01": "f64x2.convert_low_i32x4_u", "\xfd\x5b": "v128.store64_lane",
	} {
		if seen[code] != name {
			t.Errorf("% x is %q, want %q", code, seen[code], name)
		}
	}
}

func TestACallEndsWithItsCountdown(t *testing.T) {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(ctx)
	o := smith.DefaultOptions()
	o.Imports, o.Steps = false, 0
	for seed := range uint64(20) {
		mod, err := rt.InstantiateWithConfig(ctx, smith.Module(rand.New(rand.NewPCG(seed, 9)), o), wazero.NewModuleConfig().WithName(""))
		if err != nil {
			continue // its start section entered a function
		}
		for i := 0; mod.ExportedFunction(fmt.Sprintf("f%d", i)) != nil; i++ {
			f := mod.ExportedFunction(fmt.Sprintf("f%d", i))
			words := 0
			for _, kind := range f.Definition().ParamTypes() {
				if words++; kind == smith.V128 {
					words++
				}
			}
			if _, err := f.Call(ctx, make([]uint64, words)...); err == nil {
				t.Errorf("seed %d: f%d was entered with a countdown of 0", seed, i)
			}
		}
	}
}
