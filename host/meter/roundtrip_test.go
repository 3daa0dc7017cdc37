package meter_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/routerd/routerd/host/meter"
)

// everyInstruction lists each opcode of core 2.0 and SIMD once, in its shortest form.
func everyInstruction() map[string][]byte {
	all := map[string][]byte{}
	add := func(parts ...any) {
		code := cat(parts...)
		all[fmt.Sprintf("% x", code[:min(3, len(code))])] = code
	}
	plain := []byte{0x00, 0x01, 0x05, 0x0b, 0x0f, 0x1a, 0x1b, 0xd1}
	for op := byte(0x45); op <= 0xc4; op++ {
		plain = append(plain, op)
	}
	for _, op := range plain {
		add(op)
	}
	for op := 0x02; op <= 0x04; op++ {
		for _, bt := range []int{0x40, i32, i64, f32, f64, v128, funcref, externref, 5} {
			add(op, bt)
		}
	}
	for _, op := range []int{0x0c, 0x0d, 0x10, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0xd2} {
		add(op, 0xac, 0x02)
	}
	add(0x0e, 3, 1, 0, 2, 7)
	add(0x11, 4, 1)
	add(0x1c, 1, f64)
	for op := 0x28; op <= 0x3e; op++ {
		add(op, 2, 0x80, 0x10)
	}
	add(0x3f, 0)
	add(0x40, 0)
	add(0x41, 0x80, 0x80, 0x80, 0x80, 0x78) // -2^31
	add(0x42, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f)
	add(0x43, 1, 0, 0xa0, 0x7f) // a signalling NaN keeps its bits
	add(0x44, 1, 2, 3, 4, 5, 6, 0xf4, 0x7f)
	add(0xd0, funcref)
	for sub := range 8 {
		add(0xfc, sub)
	}
	for sub, n := range map[int]int{8: 2, 9: 1, 10: 2, 11: 1, 12: 2, 13: 1, 14: 2, 15: 1, 16: 1, 17: 1} {
		add(0xfc, sub, make([]byte, n))
	}
	for sub := range 256 {
		if !undefinedVector[sub] {
			add(vectorCode(sub))
		}
	}
	return all
}

var undefinedVector = map[int]bool{
	0x9a: true, 0xa2: true, 0xa5: true, 0xa6: true, 0xaf: true, 0xb0: true, 0xb2: true, 0xb3: true, 0xb4: true, 0xbb: true,
	0xc2: true, 0xc5: true, 0xc6: true, 0xcf: true, 0xd0: true, 0xd2: true, 0xd3: true, 0xd4: true, 0xe2: true, 0xee: true,
}

func vectorCode(sub int) []byte {
	code := cat(0xfd, uleb(uint64(sub)))
	switch {
	case sub <= 11, sub == 92, sub == 93:
		return cat(code, 3, 0x80, 0x01)
	case sub == 12, sub == 13:
		return cat(code, "0123456789abcdef")
	case sub >= 21 && sub <= 34:
		return cat(code, 1)
	case sub >= 84 && sub <= 91:
		return cat(code, 0, 9, 1)
	}
	return code
}

func TestEveryInstructionDecodesEncodesAndDecodesEqual(t *testing.T) {
	all := everyInstruction()
	if want := 8 + 128 + 27 + 11 + 3 + 23 + 2 + 4 + 1 + 18 + 236; len(all) != want {
		t.Errorf("%d instructions, want %d", len(all), want)
	}
	for name, code := range all {
		first, second, n, err := meter.RoundTrip(code)
		if err != nil || n != 1 || !bytes.Equal(first, code) || !bytes.Equal(second, code) {
			t.Errorf("%s: % x and % x, %d instructions, %v; want % x", name, first, second, n, err, code)
		}
	}
}

func TestUndefinedOpcodesAreRefused(t *testing.T) {
	known := map[byte]bool{0xfc: true, 0xfd: true}
	for _, code := range everyInstruction() {
		known[code[0]] = true
	}
	for op := range 256 {
		if _, _, _, err := meter.RoundTrip(cat(op, make([]byte, 24))); !known[byte(op)] && err == nil {
			t.Errorf("opcode %#x was accepted", op)
		}
	}
	for sub := range 256 {
		if _, _, n, err := meter.RoundTrip(cat(0xfd, uleb(uint64(sub)), make([]byte, 24))); undefinedVector[sub] && (err == nil || n != 0) {
			t.Errorf("SIMD sub-opcode %d was accepted", sub)
		}
	}
}

func TestPaddedFormsAreRewrittenShort(t *testing.T) {
	padded := cat(0x10, 0x81, 0x80, 0x80, 0x80, 0x00, 0x41, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x42, 0x80, 0x80, 0x00, 0x28, 0x82, 0x00, 0x80, 0x80, 0x00)
	first, _, n, err := meter.RoundTrip(padded)
	if want := cat(0x10, 1, i32c(-1), i64c(0), 0x28, 2, 0); err != nil || n != 4 || !bytes.Equal(first, want) {
		t.Errorf("got % x (%d), %v; want % x", first, n, err, want)
	}
}

func TestConstantsWithWrongUpperBitsAreRefused(t *testing.T) {
	for _, code := range [][]byte{
		{0x41, 0x80, 0x80, 0x80, 0x80, 0x08},
		{0x41, 0xff, 0xff, 0xff, 0xff, 0x4f},
		{0x41, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00},
		{0x42, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01},
		{0x42, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7e},
	} {
		if _, _, _, err := meter.RoundTrip(code); err == nil {
			t.Errorf("% x was accepted", code)
		}
	}
}
