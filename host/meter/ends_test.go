package meter_test

import (
	"errors"
	"testing"

	"github.com/routerd/routerd/host/meter"
)

const budget = 1_000_000

// endsByFuel runs f until the budget ends it, and returns what was used.
func endsByFuel(t *testing.T, wasm []byte, args ...uint64) (*machine, uint64) {
	t.Helper()
	out := rewrite(t, wasm)
	if err := verify(out); err != nil {
		t.Fatal(err)
	}
	m, err := newMachine(t, out, budget)
	if err != nil {
		t.Fatal(err)
	}
	_, used, err := m.call(t, budget, "f", args...)
	if !errors.Is(err, errSpent) {
		t.Fatalf("used %d, got %v; want the call ended by fuel", used, err)
	}
	return m, used
}

func TestW1_EndlessLoopEndsByFuel(t *testing.T) {
	m, used := endsByFuel(t, fnModule(nil, nil, nil, 0x03, 0x40, 0x0c, 0, 0x0b).bytes())
	if used < budget || used > budget+10 {
		t.Errorf("used %d, want the budget of %d and at most one round more", used, budget)
	}
	if m.refuels != budget/slice-1 {
		t.Errorf("%d refuels, want one per slice after the first", m.refuels)
	}
}

func TestW2_ExponentialCallsEndByFuel(t *testing.T) {
	b := &builder{}
	v := b.typ(nil, nil)
	b.fn(v, nil)
	for i := range 40 {
		b.fn(v, nil, 0x10, uleb(uint64(i)), 0x10, uleb(uint64(i)))
	}
	b.export("f", 0, 40)
	if _, used := endsByFuel(t, b.bytes()); used > budget+10 {
		t.Errorf("used %d of %d", used, budget)
	}
}

func TestW5_RecursionEndsByFuelBeforeTheStackDoes(t *testing.T) {
	// 999 locals that are live over the call: each frame is large, and its body pays for it.
	var code []byte
	for i := range uint64(999) {
		code = cat(code, i64c(int64(i)), get(0), 0xac, 0x7c, set(i+1))
	}
	code = cat(code, get(0), 0x10, 0)
	for i := range uint64(999) {
		code = cat(code, get(i+1), 0xa7, 0x6a)
	}
	endsByFuel(t, fnModule(one, one, [][]byte{group(999, i64)}, code).bytes(), 1)
	endsByFuel(t, fnModule(nil, nil, nil, 0x10, 0).bytes()) // and the smallest frame
}

func TestTooLongBulkOperationsEndTheCallAndNeverRun(t *testing.T) {
	over := map[string][]byte{
		"memory.fill": cat(i32c(0), i32c(7), get(0), 0xfc, 11, 0),
		"memory.copy": cat(i32c(0), i32c(8), get(0), 0xfc, 10, 0, 0),
		"memory.init": cat(i32c(0), i32c(0), get(0), 0xfc, 8, 0, 0),
	}
	for name, code := range over {
		for _, n := range []uint64{4<<20 + 1, 1<<32 - 1} {
			m, _ := endsByFuel(t, costModule(nil, code), n, 0)
			if b, ok := m.mod.Memory().ReadByte(0); !ok || b != 0 {
				t.Errorf("%s of %d ran", name, n)
			}
		}
	}
	tables := map[string][]byte{
		"table.fill": cat(i32c(0), 0xd0, funcref, get(0), 0xfc, 17, 0),
		"table.grow": cat(0xd0, funcref, get(0), 0xfc, 15, 0, 0x1a),
		"table.copy": cat(i32c(0), i32c(0), get(0), 0xfc, 14, 0, 0),
		"table.init": cat(i32c(0), i32c(0), get(0), 0xfc, 12, 0, 0),
	}
	for _, code := range tables {
		endsByFuel(t, costModule(nil, code), 65_537, 0)
		endsByFuel(t, costModule(nil, code), 1<<32-1, 0)
	}
}

func TestBulkOperationsAtTheirLimitAreChargedNotForbidden(t *testing.T) {
	m, err := newMachine(t, rewrite(t, costModule(nil, cat(i32c(0), i32c(7), get(0), 0xfc, 11, 0))), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, used, err := m.call(t, budget, "f", 4<<20, 0)
	if err == nil || errors.Is(err, errSpent) || used < 4<<20/16 {
		t.Errorf("used %d, got %v; want the charge of 262144 and then the trap of the memory's bounds", used, err)
	}
}

func TestFillLoopPaysBeforeItWorks(t *testing.T) {
	code := cat(0x03, 0x40, i32c(0), i32c(7), i32c(64_000), 0xfc, 11, 0, 0x0c, 0, 0x0b)
	m, _ := endsByFuel(t, costModule(nil, code), 0, 0)
	if m.refuels < budget/slice/2 {
		t.Errorf("%d refuels: the fills had no safepoints", m.refuels)
	}
}

func TestW8_StartSectionEndsByFuel(t *testing.T) {
	b := void(nil, 0x03, 0x40, 0x0c, 0, 0x0b)
	b.start = []byte{0}
	if _, err := newMachine(t, rewrite(t, b.bytes()), 50_000); !errors.Is(err, errSpent) {
		t.Errorf("got %v, want the start function ended by fuel", err)
	}
}

func TestUnwindingADeepStackMeetsChecks(t *testing.T) {
	// f(n): if n { f(n-1) }, then a block whose end is a new segment of 40 instructions.
	code := cat(get(0), 0x04, 0x40, get(0), i32c(1), 0x6b, 0x10, 0, 0x0b, 0x02, 0x40, get(0), 0x0d, 0, 0x0b, repeat(40, 0x01))
	m, err := newMachine(t, rewrite(t, fnModule(one, nil, nil, code).bytes()), 0)
	if err != nil {
		t.Fatal(err)
	}
	down, err := descent(t, m, 2000)
	if err != nil {
		t.Fatal(err)
	}
	if _, used, err := m.call(t, down, "f", 2000); !errors.Is(err, errSpent) || used > down+100 {
		t.Errorf("used %d of %d, %v; want the unwinding ended at once when the budget is", used, down, err)
	}
}

// descent is a budget that lets f(n) reach its bottom but not come back.
func descent(t *testing.T, m *machine, n uint64) (uint64, error) {
	t.Helper()
	_, all, err := m.call(t, budget, "f", n)
	_, leaf, _ := m.call(t, budget, "f", 0)
	return all - leaf*n/2, err
}

func TestRewriteRefusesOptionsThatCannotHold(t *testing.T) {
	b := void(nil)
	b.memory(65, 100)
	m := decode(t, b.bytes())
	_, err := m.Rewrite(meter.Options{MemoryMaxPages: 64, StartFuel: 1, Slice: slice})
	wantRefusal(t, err, "E_LIMIT", "fuel rewrite", "memory minimum of 65 pages")
	_, err = m.Rewrite(meter.Options{MemoryMaxPages: 65, StartFuel: 1, Slice: 999})
	wantRefusal(t, err, "E_LIMIT", "fuel rewrite", "slice of 999")
	_, err = m.Rewrite(meter.Options{MemoryMaxPages: 65, StartFuel: 1 << 63, Slice: slice})
	wantRefusal(t, err, "E_LIMIT", "fuel rewrite", "start fuel")
}
