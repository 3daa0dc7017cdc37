package abi_test

import (
	"testing"

	"github.com/routerd/routerd/plugins/abi"
)

func TestNoOpcodeHasTwoPrices(t *testing.T) {
	type opcode struct {
		prefix byte
		number uint16
	}
	class := map[opcode]string{}
	for _, c := range abi.Fuel1().Classes() {
		for _, r := range c.Opcodes {
			if r.First > r.Last {
				t.Errorf("%s: range %v", c.Name, r)
			}
			for n := r.First; n <= r.Last; n++ {
				o := opcode{r.Prefix, n}
				if other, twice := class[o]; twice {
					t.Errorf("%#x %d is in %q and %q", r.Prefix, n, other, c.Name)
				}
				class[o] = c.Name
			}
		}
	}
	if want := 183 + 18 + 236; len(class) != want { // core without prefix, 0xfc, 0xfd
		t.Errorf("%d opcodes have a class, want %d", len(class), want)
	}
}

func TestLengthPriceRoundsDownAndNeverWraps(t *testing.T) {
	for _, tc := range []struct {
		unit         abi.FuelUnit
		length, most uint32
		want         uint64
	}{
		{abi.FuelUnitNone, 9, 0, 0},
		{abi.FuelUnitPages, 0, 64, 0},
		{abi.FuelUnitPages, 64, 64, 64 * 4096},
		{abi.FuelUnitPages, 65, 64, 4096},
		{abi.FuelUnitPages, 1<<32 - 1, 64, 4096},
		{abi.FuelUnitBytes, 15, 0, 0},
		{abi.FuelUnitBytes, 31, 0, 1},
		{abi.FuelUnitBytes, 4 << 20, 0, 4 << 16},
		{abi.FuelUnitBytes, 4<<20 + 1, 0, abi.Endless},
		{abi.FuelUnitBytes, 1 << 31, 0, abi.Endless},
		{abi.FuelUnitElements, 65_536, 0, 65_536},
		{abi.FuelUnitElements, 65_537, 0, abi.Endless},
	} {
		if got := abi.Fuel1().LengthPrice(tc.unit, tc.length, tc.most); got != tc.want {
			t.Errorf("%d %s with a maximum of %d: %d, want %d", tc.length, tc.unit, tc.most, got, tc.want)
		}
	}
}
