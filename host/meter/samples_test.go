package meter_test

import (
	"fmt"

	"github.com/routerd/routerd/host/smith"
)

// sample is a piece of code whose price is measured: the fuel of a function with it minus that of one without it.
// Both are as long and end in a return that leaves whatever is on the stack, so nothing else differs.
type sample struct {
	name     string
	opcode   []byte // the instruction that it is a sample of, nil for none
	setup    []byte // before it, in both functions
	code     []byte // what is measured
	base     []byte // what stands in its place in the other function
	locals   uint64 // declared in the function with it, where not 1 as in the other
	ends     bool   // nothing after the code is executed, so the return is not
	callee   bool   // the function "callee" is entered
	length   uint32 // the operand by which it is charged
	bodySize int    // of both, when not 0; the price is then that of the entry
}

// simple is an instruction with its operands as constants.
func simple(name string, setup []byte, code ...any) sample {
	c := cat(code...)
	return sample{name: name, opcode: opcodeOf(c), setup: setup, code: c}
}

func opcodeOf(code []byte) []byte {
	if code[0] < 0xfc {
		return code[:1]
	}
	n := 2
	for code[n-1] >= 0x80 {
		n++
	}
	return code[:n]
}

// operand is a constant of a type, 1 where a number is needed that divides and converts.
func operand(kind byte) []byte {
	switch kind {
	case i32:
		return i32c(1)
	case i64:
		return i64c(1)
	case f32:
		return []byte{0x43, 0, 0, 0x80, 0x3f}
	case f64:
		return f64c(1)
	}
	return cat(0xfd, 12, make([]byte, 16))
}

// samples are one of each instruction, and what depends on lengths, locals and body sizes.
func samples() []sample {
	all := controlSamples()
	for _, in := range smith.Instructions() {
		var setup []byte
		for _, kind := range in.Params {
			setup = append(setup, operand(kind)...)
		}
		s := simple(in.Name, setup, in.Code, in.Immediates(0, 0))
		s.opcode = in.Code
		all = append(all, s)
	}
	return append(append(all, lengthSamples()...), placeSamples()...)
}

func controlSamples() []sample {
	null := cat(0xd0, funcref)
	ends := func(s sample) sample { s.ends = true; return s }
	calls := func(s sample) sample { s.callee = true; return s }
	instead := func(s sample, op byte, base ...any) sample { s.opcode, s.base = []byte{op}, cat(base...); return s }
	return []sample{
		ends(simple("unreachable", nil, 0x00)),
		simple("nop", nil, 0x01),
		simple("block", nil, 0x02, 0x40, 0x0b),
		simple("loop", nil, 0x03, 0x40, 0x0b),
		simple("loop with parameters", i32c(1), 0x03, 1, 0x1a, 0x0b).less(1),
		simple("if, not taken", i32c(0), 0x04, 0x40, 0x0b),
		simple("if, taken", i32c(1), 0x04, 0x40, 0x0b),
		instead(simple("else, not reached", i32c(1), 0x04, 0x40, 0x05, 0x0b), 0x05, 0x04, 0x40, 0x0b),
		instead(simple("else, taken", i32c(0), 0x04, 0x40, 0x05, 0x0b), 0x05, 0x04, 0x40, 0x0b),
		instead(simple("end", nil, 0x02, 0x40, 0x0b), 0x0b, 0x01), // a nop is as dear as a block
		ends(simple("br", nil, 0x0c, 0)),
		simple("br_if, not taken", i32c(0), 0x0d, 0),
		ends(simple("br_if, taken", i32c(1), 0x0d, 0)),
		ends(simple("br_table", i32c(0), 0x0e, 0, 0)),
		ends(simple("br_table of 3 labels", i32c(2), 0x0e, 3, 0, 0, 0, 0)),
		ends(simple("return", nil, 0x0f)),
		calls(simple("call", nil, 0x10, 0)),
		calls(simple("call_indirect", i32c(15), 0x11, 0, 0)),
		simple("drop", i32c(0), 0x1a),
		simple("select", cat(i32c(0), i32c(0), i32c(0)), 0x1b),
		simple("select with a type", cat(null, null, i32c(0)), 0x1c, 1, funcref),
		simple("local.get", nil, 0x20, 0),
		simple("local.set", i32c(0), 0x21, 0),
		simple("local.tee", i32c(0), 0x22, 0),
		simple("global.get", nil, 0x23, 0),
		simple("global.set", i32c(0), 0x24, 0),
		simple("table.get", i32c(0), 0x25, 0),
		simple("table.set", cat(i32c(1), null), 0x26, 0),
		simple("memory.size", nil, 0x3f, 0),
		simple("i32.const", nil, i32c(-5)),
		simple("i64.const", nil, i64c(1<<40)),
		simple("f32.const", nil, operand(f32)),
		simple("f64.const", nil, operand(f64)),
		simple("ref.null", nil, null),
		simple("ref.is_null", null, 0xd1),
		simple("ref.func", nil, 0xd2, 0),
		simple("data.drop", nil, 0xfc, 9, 1),
		simple("elem.drop", nil, 0xfc, 13, 1),
		simple("table.size", nil, 0xfc, 16, 0),
	}
}

// less puts n nops in the place of the code, so that they are not part of the price.
func (s sample) less(n int) sample {
	s.base = repeat(n, 0x01)
	return s
}

func lengthSamples() []sample {
	null := cat(0xd0, funcref)
	var all []sample
	add := func(unit string, name string, before []byte, lengths []int64, code ...any) {
		for _, n := range lengths {
			s := simple(fmt.Sprintf("%s of %d %s", name, n, unit), cat(before, i32c(int32(n))), code...)
			s.length = uint32(n)
			all = append(all, s)
		}
	}
	twice := cat(i32c(0), i32c(0))
	bytes := []int64{0, 15, 16, 17, 33, 4096, 4<<20 + 1, 1 << 31, 1<<32 - 1}
	elements := []int64{0, 1, 2, 7, 65_537, 1 << 31, 1<<32 - 1}
	add("pages", "memory.grow", nil, []int64{0, 1, 2, 4, 1 << 31, 1<<32 - 1}, 0x40, 0)
	add("bytes", "memory.init", twice, bytes, 0xfc, 8, 0, 0)
	add("bytes", "memory.copy", twice, bytes, 0xfc, 10, 0, 0)
	add("bytes", "memory.fill", twice, bytes, 0xfc, 11, 0)
	add("elements", "table.init", twice, elements, 0xfc, 12, 0, 0)
	add("elements", "table.copy", twice, elements, 0xfc, 14, 0, 0)
	add("elements", "table.grow", null, elements, 0xfc, 15, 0)
	add("elements", "table.fill", cat(i32c(0), null), elements, 0xfc, 17, 0)
	return all
}

// placeSamples are what the places of segments and functions cost.
func placeSamples() []sample {
	var all []sample
	for _, n := range []uint64{15, 16, 31, 32, 1000} {
		add := func(what string, setup []byte, code ...any) {
			c := cat(code...)
			all = append(all, sample{name: fmt.Sprintf("%s, in a function with %d locals", what, n), setup: setup, code: c, base: c, locals: n})
		}
		add("no segment but the first", nil, 0x01)
		add("after a loop head", nil, 0x03, 0x40, 0x0b)
		add("after an if, and after its end", i32c(1), 0x04, 0x40, 0x0b)
		add("after the end of an if not taken", i32c(0), 0x04, 0x40, 0x0b)
		add("after an else, and after its end", i32c(0), 0x04, 0x40, 0x05, 0x0b)
		add("after a br_if", i32c(0), 0x0d, 0)
		add("after an end that a branch names", nil, 0x02, 0x40, 0x0c, 0, 0x0b)
		add("after an end that no branch names", nil, 0x02, 0x40, 0x0b)
	}
	for _, n := range []int{15, 16, 17, 31, 32, 1000, 65_536} {
		all = append(all, sample{name: fmt.Sprintf("entry of a function of %d bytes", n), bodySize: n})
	}
	return all
}
