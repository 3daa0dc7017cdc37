package meter_test

import (
	"testing"

	"github.com/routerd/routerd/host/meter"
)

// costModule has one function f(i32, i32) -> (), a memory, a table of 16 and a second function g.
func costModule(locals [][]byte, code ...any) []byte {
	b := &builder{}
	t := b.typ([]byte{i32, i32}, nil)
	f := b.fn(t, locals, code...)
	b.fn(b.typ(nil, nil), nil)
	b.export("f", 0, f)
	b.memory(1, 3)
	b.table(funcref, 16, 16)
	b.export("memory", 2, 0)
	b.elements = [][]byte{{1, 0, 2, 0, 1}}
	b.count = true
	b.datas = [][]byte{cat(1, str("sixteen bytes...and thirty-two..."))}
	return b.bytes()
}

var costCases = []struct {
	name   string
	locals [][]byte
	code   []byte
	args   [2]uint64
	want   uint64 // without the entry price of 1 + body/16
}{
	{"empty body", nil, nil, [2]uint64{}, 0},
	{"each instruction is 1, end is none", nil, cat(0x01, 0x01, get(0), 0x1a), [2]uint64{}, 4},
	{"load is 4", nil, cat(get(0), 0x28, 2, 0, 0x1a), [2]uint64{}, 1 + 4 + 1},
	{"store is 4", nil, cat(get(0), get(1), 0x36, 2, 0), [2]uint64{}, 2 + 4},
	{"SIMD load is 4", nil, cat(get(0), 0xfd, 0, 0, 0, 0x1a), [2]uint64{}, 1 + 4 + 1},
	{"SIMD lane store is 4", nil, cat(get(0), get(0), 0xfd, 15, 0xfd, 88, 0, 0, 0), [2]uint64{}, 3 + 4},
	{"memory.size is 1", nil, cat(0x3f, 0, 0x1a), [2]uint64{}, 2},
	{"block is 1, its end joins nothing", [][]byte{group(30, i32)}, cat(0x02, 0x40, 0x01, 0x0b, 0x01), [2]uint64{}, 3},
	{"if taken: (30 + 2) / 16 after if and after end", [][]byte{group(30, i32)}, cat(get(0), 0x04, 0x40, 0x01, 0x0b, 0x01), [2]uint64{1}, 2 + 3 + 3},
	{"if not taken", [][]byte{group(30, i32)}, cat(get(0), 0x04, 0x40, 0x01, 0x0b, 0x01), [2]uint64{0}, 2 + 3},
	{"else taken", [][]byte{group(30, i32)}, cat(get(0), 0x04, 0x40, 0x01, 0x05, 0x01, 0x01, 0x0b), [2]uint64{0}, 2 + (2 + 2) + 2},
	{"branch out skips", nil, cat(0x02, 0x40, get(0), 0x0d, 0, 0x01, 0x01, 0x0b), [2]uint64{1}, 3},
	{"branch not taken", nil, cat(0x02, 0x40, get(0), 0x0d, 0, 0x01, 0x01, 0x0b), [2]uint64{0}, 5},
	{"15 locals are free in joins", [][]byte{group(13, i32)}, cat(0x02, 0x40, get(0), 0x0d, 0, 0x01, 0x0b, 0x01), [2]uint64{0}, 5},
	{"16 locals are 1 after br_if and end", [][]byte{group(14, i32)}, cat(0x02, 0x40, get(0), 0x0d, 0, 0x01, 0x0b, 0x01), [2]uint64{0}, 5 + 2},
	{"code after a branch is free", nil, cat(0x02, 0x40, 0x0c, 0, 0x01, 0x01, 0x01, 0x0b), [2]uint64{}, 2},
	{"code after return is free", nil, cat(0x0f, 0x01, 0x01), [2]uint64{}, 1},
	{"loop body each time", nil, cat(0x03, 0x40, get(0), i32c(1), 0x6b, 0x22, 0, 0x0d, 0, 0x0b), [2]uint64{10}, 1 + 10*5},
	{"loop with 32 locals", [][]byte{group(30, i32)}, cat(0x03, 0x40, get(0), i32c(1), 0x6b, 0x22, 0, 0x0d, 0, 0x0b), [2]uint64{10}, 1 + 10*(5+2) + 2},
	{"empty loop costs 1 at its head", nil, cat(0x03, 0x40, 0x0b), [2]uint64{}, 2},
	{"call pays the entry of the callee", nil, cat(0x10, 1), [2]uint64{}, 1 + 1},
	{"memory.grow by 2 pages", nil, cat(get(0), 0x40, 0, 0x1a), [2]uint64{2}, 3 + 2*4096},
	{"memory.grow by 0", nil, cat(get(0), 0x40, 0, 0x1a), [2]uint64{0}, 3},
	{"W3 memory.grow by more than the maximum is one page", nil, cat(get(0), 0x40, 0, 0x1a), [2]uint64{4}, 3 + 4096},
	{"W3 memory.grow by 2^32 - 1", nil, cat(get(0), 0x40, 0, 0x1a), [2]uint64{1<<32 - 1}, 3 + 4096},
	{"memory.fill of 160 bytes", nil, cat(i32c(0), i32c(0), get(0), 0xfc, 11, 0), [2]uint64{160}, 4 + 10},
	{"memory.copy of 15 bytes", nil, cat(i32c(0), i32c(0), get(0), 0xfc, 10, 0, 0), [2]uint64{15}, 4},
	{"memory.init of 32 bytes", nil, cat(i32c(0), i32c(0), get(0), 0xfc, 8, 0, 0), [2]uint64{32}, 4 + 2},
	{"data.drop is 1", nil, cat(0xfc, 9, 0), [2]uint64{}, 1},
	{"table.init of 2", nil, cat(i32c(0), i32c(0), get(0), 0xfc, 12, 0, 0), [2]uint64{2}, 4 + 2},
	{"table.copy of 5", nil, cat(i32c(0), i32c(0), get(0), 0xfc, 14, 0, 0), [2]uint64{5}, 4 + 5},
	{"table.fill of 7", nil, cat(i32c(0), 0xd0, funcref, get(0), 0xfc, 17, 0), [2]uint64{7}, 4 + 7},
	{"table.grow of 9", nil, cat(0xd0, funcref, get(0), 0xfc, 15, 0, 0x1a), [2]uint64{9}, 4 + 9},
	{"long straight code is exact over its splits", nil, repeat(5000, 0x01), [2]uint64{}, 5000},
}

func TestGoldenCosts(t *testing.T) {
	for _, tc := range costCases {
		t.Run(tc.name, func(t *testing.T) {
			wasm := costModule(tc.locals, tc.code)
			m, err := newMachine(t, rewrite(t, wasm), 0)
			if err != nil {
				t.Fatal(err)
			}
			_, used, err := m.call(t, 1_000_000, "f", tc.args[0], tc.args[1])
			if err != nil {
				t.Fatal(err)
			}
			body := len(vec(tc.locals...)) + len(tc.code) + 1
			if want := tc.want + 1 + uint64(body/16); used != want {
				t.Errorf("used %d, want %d", used, want)
			}
		})
	}
}

func TestGrantCoversDebtsWithinTheRest(t *testing.T) {
	cases := []struct {
		left        int64
		rest, slice uint64
		want        uint64
		ok          bool
	}{
		{-1, 100_000, 10_000, 10_000, true},
		{-1, 5_000, 10_000, 5_000, true},
		{-262_144, 300_000, 10_000, 262_144, true},
		{-262_144, 262_143, 10_000, 0, false},
		{-5, 5, 10_000, 5, true},
		{-5, 4, 10_000, 0, false},
		{-1 << 62, 1 << 40, 10_000, 0, false},
		{-1 << 63, 1<<64 - 1, 10_000, 1 << 63, true},
		{0, 0, 10_000, 0, false},
		{7, 100, 10, 10, true},
	}
	for _, tc := range cases {
		got, ok := meter.Grant(tc.left, tc.rest, tc.slice)
		if got != tc.want || ok != tc.ok {
			t.Errorf("Grant(%d, %d, %d) = %d, %v; want %d, %v", tc.left, tc.rest, tc.slice, got, ok, tc.want, tc.ok)
		}
	}
}
