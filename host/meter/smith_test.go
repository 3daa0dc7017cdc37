package meter_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/routerd/routerd/host/meter"
	"github.com/routerd/routerd/host/smith"
)

func TestMeteredSmithModulesAnswerLikeTheirOriginals(t *testing.T) {
	const chunk = 1000 // an engine keeps a little of each module for its life
	for from := 0; from < smithModules; from += chunk {
		t.Run(fmt.Sprintf("from %d", from), func(t *testing.T) {
			rigs := newRigs(t)
			for i := from; i < min(from+chunk, smithModules); i++ {
				rnd, o := seeded(uint64(i))
				if diff := differ(rigs, smith.Module(rnd, o), rnd); diff != "" {
					t.Fatalf("seed %d: %s", i, diff)
				}
			}
		})
	}
}

// FuzzMeteredLikeOriginal lets the fuzzer choose what the generator draws.
func FuzzMeteredLikeOriginal(f *testing.F) {
	rigs := newRigs(f)
	for seed := range uint64(8) {
		rnd, data := rand.New(rand.NewPCG(seed, 3)), make([]byte, 64<<(seed%4))
		for i := range data {
			data[i] = byte(rnd.Uint32())
		}
		f.Add(data)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		rnd := rand.New(&tape{data: data, after: rand.NewPCG(uint64(len(data)), 5)})
		o := smith.DefaultOptions()
		o.Unbounded = len(data)%2 == 1
		if diff := differ(rigs, smith.Module(rnd, o), rnd); diff != "" {
			t.Fatal(diff)
		}
	})
}

// tape is a source that reads one byte for the upper bits of each draw, which decide small choices.
type tape struct {
	data  []byte
	after *rand.PCG
}

func (s *tape) Uint64() uint64 {
	v := s.after.Uint64()
	if len(s.data) > 0 {
		// IntN of a small number looks at the upper half of the lower or of the whole word.
		b := uint64(s.data[0])
		v, s.data = b<<56|b<<24|v&0x00ffffff00ffffff, s.data[1:]
	}
	return v
}

// instructionsOf counts the instructions of all bodies of a module by opcode, with the second decoder.
func instructionsOf(wasm []byte, count map[int]int) {
	w := &wire{b: wasm, p: 8}
	for w.p < len(w.b) {
		id, s := w.u8(), &wire{b: w.skip(w.leb())}
		if id != 10 {
			continue
		}
		for n := s.leb(); n > 0; n-- {
			body := &wire{b: s.skip(s.leb())}
			for n := body.leb(); n > 0; n-- {
				body.leb()
				body.u8()
			}
			for body.p < len(body.b) {
				count[body.token().op]++
			}
		}
	}
}

// TestSmithModulesAreChargedWhereCodeBegins holds more modules against the second decoder than are run, and shows
// that they hold each instruction and enough loops for that to mean something.
func TestSmithModulesAreChargedWhereCodeBegins(t *testing.T) {
	count := map[int]int{}
	for seed := range uint64(chargedModules) {
		rnd, o := seeded(seed + 1<<32)
		wasm := smith.Module(rnd, o)
		instructionsOf(wasm, count)
		for _, size := range []uint64{1000, slice} {
			out, err := decode(t, wasm).Rewrite(meter.Options{MemoryMaxPages: 64, StartFuel: slice, Slice: size})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := verify(out); err != nil {
				t.Fatalf("seed %d, slice %d: %v", seed, size, err)
			}
		}
	}
	if loops := count[0x03]; loops < chargedModules*2/3 {
		t.Errorf("%d loops in all modules", loops)
	}
	for _, code := range everyInstruction() {
		op := (&wire{b: code}).token().op
		if op != 0xd2 && count[op] == 0 {
			t.Errorf("instruction % x is in no module", code)
		}
	}
	t.Logf("%d kinds of instructions", len(count))
}
