package meter_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host/meter"
)

// fnModule has one exported function f of the given type, a memory and a table.
func fnModule(params, results []byte, locals [][]byte, code ...any) *builder {
	b := &builder{}
	b.fn(b.typ(params, results), locals, code...)
	b.export("f", 0, 0)
	b.memory(1, 4)
	b.export("memory", 2, 0)
	b.table(funcref, 8)
	b.export("table", 1, 0)
	return b
}

var (
	one  = []byte{i32}
	two  = []byte{i32, i32}
	fact = cat(get(0), 0x45, 0x04, i32, i32c(1), 0x05, get(0), get(0), i32c(1), 0x6b, 0x10, 0, 0x6c, 0x0b)
)

var equalCases = []struct {
	name string
	wasm func() []byte
	args [][]uint64
}{
	{"arithmetic", func() []byte {
		return fnModule(two, one, nil, get(0), get(1), 0x6a, get(0), 0x6c, 0x67, get(1), 0x77).bytes()
	}, [][]uint64{{3, 4}, {1 << 31, 7}, {0, 0}}},
	{"division by zero traps in both", func() []byte {
		return fnModule(two, one, nil, get(0), get(1), 0x6d).bytes()
	}, [][]uint64{{7, 2}, {7, 0}}},
	{"memory", func() []byte {
		return fnModule(two, one, nil, get(0), get(1), 0x36, 2, 4, get(0), 0x2d, 0, 5, get(0), i32c(7), 0x3a, 0, 9).bytes()
	}, [][]uint64{{16, 0x01020304}, {65_536, 1}, {65_531, 1}}},
	{"memory.grow and size", func() []byte {
		return fnModule(two, one, nil, get(0), 0x40, 0, 0x3f, 0, i32c(1000), 0x6c, 0x6a).bytes()
	}, [][]uint64{{2, 0}, {1, 0}, {5, 0}, {1<<32 - 1, 0}}},
	{"recursion", func() []byte { return fnModule(one, one, nil, fact).bytes() }, [][]uint64{{0}, {5}, {12}}},
	{"br_table", func() []byte {
		return fnModule(one, one, nil,
			0x02, 0x40, 0x02, 0x40, 0x02, 0x40, get(0), 0x0e, 2, 0, 1, 2, 0x0b, i32c(10), 0x0f, 0x0b, i32c(20), 0x0f, 0x0b, i32c(30)).bytes()
	}, [][]uint64{{0}, {1}, {2}, {99}}},
	{"br_table with values", func() []byte {
		return fnModule(one, one, nil, 0x02, i32, 0x02, i32, i32c(5), get(0), 0x0e, 1, 0, 1, 0x0b, i32c(1), 0x6a, 0x0b).bytes()
	}, [][]uint64{{0}, {1}}},
	{"loop with parameters", func() []byte {
		return fnModule(one, one, nil, // sum of 1..n with the accumulator on the operand stack
			i32c(0), 0x03, 0, get(0), 0x6a, get(0), i32c(1), 0x6b, 0x22, 0, 0x0d, 0, 0x0b).bytes()
	}, [][]uint64{{1}, {10}, {10_000}}},
	{"if with parameters", func() []byte {
		b := fnModule(one, one, nil, i32c(7), get(0), 0x04, 0, i32c(1), 0x6a, 0x05, i32c(2), 0x6c, 0x0b)
		return b.bytes()
	}, [][]uint64{{0}, {1}}},
	{"call_indirect", func() []byte {
		b := &builder{}
		v, u := b.typ(nil, one), b.typ(one, one)
		b.imp(meter.RefuelModule, "nop", b.typ(nil, nil))
		b.fn(v, nil, i32c(11))
		b.fn(v, nil, i32c(22))
		b.export("f", 0, b.fn(u, nil, get(0), 0x11, uleb(v), 0))
		b.table(funcref, 5)
		b.memory(1)
		b.elements = [][]byte{cat(0, i32c(1), 0x0b, 2, 1, 2), cat(4, i32c(3), 0x0b, 1, 0xd2, 2, 0x0b), {3, 0, 1, 3}}
		return b.bytes()
	}, [][]uint64{{0}, {1}, {2}, {3}, {4}, {5}}},
	{"ref.func in a global, table.set, table.get", func() []byte {
		b := fnModule(one, one, nil, get(0), 0x23, 0, 0x26, 0, get(0), 0x25, 0, 0xd1, 0xfc, 16, 0, 0x6a)
		b.globals = [][]byte{cat(funcref, 0, 0xd2, 0, 0x0b)}
		return b.bytes()
	}, [][]uint64{{2}, {8}}},
	{"table.grow without a maximum answers -1", func() []byte {
		b := fnModule(one, one, nil, 0xd0, funcref, get(0), 0xfc, 15, 0)
		b.tables = nil
		b.table(funcref, 8, 8)
		return b.bytes()
	}, [][]uint64{{0}, {1}}},
	{"bulk memory", func() []byte {
		b := fnModule(two, one, nil, i32c(100), i32c(0), get(0), 0xfc, 8, 0, 0, i32c(200), i32c(100), get(1), 0xfc, 10, 0, 0,
			i32c(300), i32c(0xab-256), get(1), 0xfc, 11, 0, i32c(208), 0x28, 0, 0)
		b.count, b.datas = true, [][]byte{cat(1, str("0123456789abcdef"))}
		return b.bytes()
	}, [][]uint64{{16, 64}, {17, 1}, {4, 1 << 20}}},
	{"SIMD", func() []byte {
		return fnModule(two, one, nil, get(0), 0xfd, 17, get(1), 0xfd, 17, 0xfd, 0xae, 0x01, 0xfd, 12, make([]byte, 15), 9,
			0xfd, 13, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 31, 0xfd, 27, 3, 0xfd, 17, 0xfd, 0xa3, 0x01).bytes()
	}, [][]uint64{{1, 2}, {1 << 31, 1 << 31}}},
	{"globals keep their numbers", func() []byte {
		b := fnModule(one, one, nil, 0x23, 1, get(0), 0x6a, 0x24, 1, 0x23, 1)
		b.globals = [][]byte{cat(f64, 0, f64c(2), 0x0b), cat(i32, 1, i32c(40), 0x0b)}
		return b.bytes()
	}, [][]uint64{{2}, {3}}},
	{"start section runs", func() []byte {
		b := fnModule(nil, one, nil, 0x23, 0)
		b.globals = [][]byte{cat(i32, 1, i32c(1), 0x0b)}
		b.start = uleb(b.fn(b.typ(nil, nil), nil, i32c(77), 0x24, 0))
		return b.bytes()
	}, [][]uint64{{}}},
}

func TestMeteredModulesAnswerLikeTheirOriginals(t *testing.T) {
	for _, tc := range equalCases {
		t.Run(tc.name, func(t *testing.T) {
			wasm := tc.wasm()
			for _, args := range tc.args {
				want, wantErr, wantMemory := runPlain(t, wasm, args)
				got, gotErr, gotMemory := runMetered(t, wasm, args)
				if diff := cmp.Diff(want, got); diff != "" || wantErr != gotErr {
					t.Errorf("f(%v): trap %v, want %v; results (-want +got):\n%s", args, gotErr, wantErr, diff)
				}
				if !bytes.Equal(wantMemory, gotMemory) {
					t.Errorf("f(%v): memories differ", args)
				}
			}
		})
	}
}

func runPlain(t *testing.T, wasm []byte, args []uint64) (res []uint64, trap bool, memory []byte) {
	t.Helper()
	mod := plain(t, wasm)
	res, err := mod.ExportedFunction("f").Call(t.Context(), args...)
	memory, _ = mod.Memory().Read(0, mod.Memory().Size())
	return res, err != nil, memory
}

func runMetered(t *testing.T, wasm []byte, args []uint64) (res []uint64, trap bool, memory []byte) {
	t.Helper()
	out := rewrite(t, wasm)
	if err := verify(out); err != nil {
		t.Fatalf("second decoder: %v", err)
	}
	m, err := newMachine(t, out, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	res, _, err = m.call(t, 10_000_000, "f", args...)
	if errors.Is(err, errSpent) {
		t.Fatalf("f(%v): %v", args, err)
	}
	memory, _ = m.mod.Memory().Read(0, m.mod.Memory().Size())
	return res, err != nil, memory
}
