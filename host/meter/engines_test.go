package meter_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/routerd/routerd/host/smith"
)

// singles has one exported function for each instruction of the catalogue, of its own type, and a memory with
// something in it.
func singles(all []smith.Instruction) []byte {
	b := &builder{}
	for i, in := range all {
		var code []byte
		for p := range in.Params {
			code = append(code, get(uint64(p))...)
		}
		lane := byte(i)
		if in.Lanes > 0 {
			lane %= in.Lanes
		}
		code = cat(code, in.Code, in.Immediates(8, lane))
		b.export(fmt.Sprint(i), 0, b.fn(b.typ(in.Params, in.Results), nil, code))
	}
	b.memory(1, 1)
	b.datas = [][]byte{cat(0, i32c(0), 0x0b, str("\x7f\xff\x80\x00some bytes \xf0\x7f\xff\xff\xff\xff\xff\xff\x01 that are loaded and stored"))}
	return b.bytes()
}

// withoutNaNBits replaces the NaNs that an engine may choose by one.
func withoutNaNBits(in smith.Instruction, words []uint64) []uint64 {
	out := slices.Clone(words)
	for i, w := range out {
		switch in.FloatBits {
		case 64:
			if f := math.Float64frombits(w); f != f {
				out[i] = 1<<63 - 1
			}
		case 32:
			for _, shift := range []int{0, 32} {
				if f := math.Float32frombits(uint32(w >> shift)); f != f {
					out[i] = out[i]&^(0xffffffff<<shift) | 0x7fffffff<<shift
				}
			}
		}
	}
	return out
}

// TestEnginesAgreeOnEveryInstruction calls each with operands from the corners.
func TestEnginesAgreeOnEveryInstruction(t *testing.T) {
	all := smith.Instructions()
	wasm := singles(all)
	ctx := context.Background()
	var mods []api.Module
	for _, g := range newRigs(t) {
		mod, err := g.rt.Instantiate(ctx, wasm)
		if err != nil {
			t.Fatal(err)
		}
		mods = append(mods, mod)
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for i, in := range all {
		for range 60 {
			var args []uint64
			for p, kind := range in.Params {
				if p == 0 && (in.Shape == smith.Memory || in.Shape == smith.MemoryLane) {
					args = append(args, uint64(rnd.IntN(64)))
					continue
				}
				args = append(args, argument(rnd, kind)...)
			}
			var got [2]string
			for k, mod := range mods {
				words, err := mod.ExportedFunction(fmt.Sprint(i)).Call(ctx, args...)
				memory, _ := mod.Memory().Read(0, 128)
				got[k] = fmt.Sprintf("%x %s %x", withoutNaNBits(in, values(in.Results, words)), trapOf(err), memory)
			}
			if got[0] != got[1] {
				t.Errorf("%s(%x):\ninterpreter %s\ncompiler    %s", in.Name, args, got[0], got[1])
				break
			}
		}
	}
}
