package meter_test

import (
	"strings"
	"testing"
)

// metered builds a module in the form of the meter's output around one body, so that its faults can be chosen:
// refuel is function 0, the body function 1, the fuel global 0.
func metered(code ...any) []byte {
	b := &builder{}
	t := b.typ(nil, nil)
	b.imp("routerd_v1", "__refuel", t)
	b.fn(t, [][]byte{group(1, i64), group(1, i32)}, code...)
	b.globals = [][]byte{cat(i64, 1, i64c(1), 0x0b)}
	b.memory(1, 1)
	b.export("__fuel", 3, 0)
	return b.bytes()
}

var (
	toGlobal   = cat(0x20, 0, 0x24, 0)
	fromGlobal = cat(0x23, 0, 0x21, 0)
	refuelling = cat(0x22, 0, 0x42, 0, 0x53, 0x04, 0x40, toGlobal, 0x10, 0, fromGlobal, 0x0b)
)

func paidFor(n int64) []byte    { return cat(0x20, 0, i64c(n), 0x7d, 0x21, 0) }
func checkedFor(n int64) []byte { return cat(0x20, 0, i64c(n), 0x7d, refuelling) }
func entryFor(n int64) []byte   { return cat(0x23, 0, i64c(n), 0x7d, refuelling) }

// loopFor is the charge at a loop head, with the price that it adds again.
func loopFor(n, again int64) []byte {
	return cat(0x20, 0, i64c(n), 0x7d, 0x22, 0, 0x42, 0, 0x53, 0x04, 0x40, toGlobal, 0x10, 0,
		0x23, 0, i64c(again), 0x7c, 0x21, 0, 0x0c, 1, 0x0b)
}

func TestSecondDecoderFindsEachFault(t *testing.T) {
	loop := cat(0x03, 0x40, checkedFor(2), i32c(0), 0x0d, 0, 0x0b)
	cases := []struct {
		name string
		code []byte
		want string // "" accepts
	}{
		{"right", cat(entryFor(2), 0x01, loop, toGlobal), ""},
		{"right with a loop charge", cat(entryFor(1), 0x03, 0x40, loopFor(2, 2), i32c(0), 0x0d, 0, 0x0b, toGlobal), ""},
		{"a loop charge that gives back more", cat(entryFor(1), 0x03, 0x40, loopFor(2, 3), 0x0b, toGlobal), "touches the fuel"},
		{"a loop charge elsewhere", cat(entryFor(2), 0x02, 0x40, loopFor(2, 2), 0x0b, toGlobal), "loop charge elsewhere"},
		{"no charge at entry", cat(0x01), "no checked charge at function entry"},
		{"no check at entry", cat(paidFor(1), 0x01), "no checked charge at function entry"},
		{"price too low", cat(entryFor(1), 0x01, 0x01), "0x1 is not paid for"},
		{"load underpaid", cat(entryFor(5), i32c(0), 0x28, 0, 0, 0x1a), "0x1a is not paid for"},
		{"no charge at loop head", cat(entryFor(9), 0x03, 0x40, 0x01, 0x0c, 0, 0x0b), "no checked charge at a loop head"},
		{"no check at loop head", cat(entryFor(9), 0x03, 0x40, paidFor(2), 0x01, 0x0c, 0, 0x0b), "no checked charge at a loop head"},
		{"no charge after if", cat(entryFor(9), i32c(0), 0x04, 0x40, 0x01, 0x0b), "0x1 is not paid for"},
		{"no charge after else", cat(entryFor(9), i32c(0), 0x04, 0x40, paidFor(9), 0x01, 0x05, 0x01, 0x0b), "0x1 is not paid for"},
		{"no charge after br_if", cat(entryFor(9), i32c(0), toGlobal, 0x0d, 0, 0x01), "0x1 is not paid for"},
		{"no charge after a named end", cat(entryFor(9), 0x02, 0x40, 0x0c, 0, 0x0b, 0x01), "0x1 is not paid for"},
		{"the end of an unnamed block needs none", cat(entryFor(2), 0x02, 0x40, 0x0b, 0x01, toGlobal), ""},
		{"dead code needs none", cat(entryFor(1), 0x00, 0x01, 0x01), ""},
		{"a charge in dead code pays for nothing", cat(entryFor(2), i32c(0), 0x04, 0x40, paidFor(1), 0x00, paidFor(50), 0x05, 0x01, 0x0b), "0x1 is not paid for"},
		{"the branch itself is unpaid", cat(entryFor(1), 0x01, toGlobal, 0x0c, 0), "0xc is not paid for"},
		{"memory.grow without its charge", cat(entryFor(9), i32c(1), 0x40, 0, 0x1a), "without a charge by length"},
		{"memory.fill without its charge", cat(entryFor(9), i32c(1), i32c(1), i32c(1), 0xfc, 11, 0), "without a charge by length"},
		{"fuel set by the guest", cat(entryFor(9), i64c(99), 0x24, 0), "touches the fuel"},
		{"fuel read by the guest", cat(entryFor(9), 0x23, 0, 0x1a), "touches the fuel"},
		{"refuel called by the guest", cat(entryFor(9), 0x10, 0), "names the refuel import"},
		{"local of the fuel set by the guest", cat(entryFor(9), i64c(99), 0x21, 0), "touches the fuel"},
		{"a charge that gives", cat(entryFor(1), paidFor(-5), 0x01), "charge of -5"},
		{"end without a spill", cat(entryFor(1), 0x01), "0xb leaves the body without a spill"},
		{"return without a spill", cat(entryFor(1), 0x0f), "0xf leaves the body without a spill"},
		{"br to the body's label without a spill", cat(entryFor(1), 0x0c, 0), "0xc leaves the body without a spill"},
		{"br_table to the body's label without a spill", cat(entryFor(4), 0x02, 0x40, i32c(0), 0x0e, 1, 1, 0, 0x0b), "0xe leaves the body without a spill"},
		{"call without a spill", cat(entryFor(1), 0x10, 1, fromGlobal), "0x10 leaves the body without a spill"},
		{"call without a reload", cat(entryFor(1), toGlobal, 0x10, 1, toGlobal), "call without a reload"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			err := verify(metered(tc.code))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
