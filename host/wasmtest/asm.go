package wasmtest

import (
	"encoding/binary"
	"math"
)

// Code is a piece of a function body.
type Code []byte

// Cat joins pieces of code.
func Cat(parts ...Code) Code {
	var out Code
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// Op is raw bytes.
func Op(b ...byte) Code { return b }

func op(o byte, n uint64) Code { return append(Code{o}, Uleb(n)...) }

// Uleb encodes an unsigned LEB128 number.
func Uleb(v uint64) []byte { return binary.AppendUvarint(nil, v) }

// Sleb encodes a signed LEB128 number.
func Sleb(v int64) []byte {
	var out []byte
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(out, c)
		}
		out = append(out, c|0x80)
	}
}

// I32 pushes an i32.
func I32(v int32) Code { return append(Code{0x41}, Sleb(int64(v))...) }

// I64 pushes an i64.
func I64(v int64) Code { return append(Code{0x42}, Sleb(v)...) }

// F64 pushes an f64.
func F64(v float64) Code {
	return binary.LittleEndian.AppendUint64(Code{0x44}, math.Float64bits(v))
}

// Get is local.get.
func Get(i uint64) Code { return op(0x20, i) }

// Set is local.set.
func Set(i uint64) Code { return op(0x21, i) }

// Tee is local.tee.
func Tee(i uint64) Code { return op(0x22, i) }

// GetGlobal is global.get.
func GetGlobal(i uint64) Code { return op(0x23, i) }

// SetGlobal is global.set.
func SetGlobal(i uint64) Code { return op(0x24, i) }

// Call is call.
func Call(i uint64) Code { return op(0x10, i) }

// Br is br.
func Br(depth uint64) Code { return op(0x0c, depth) }

// BrIf is br_if.
func BrIf(depth uint64) Code { return op(0x0d, depth) }

// Loop is loop … end without parameters and results.
func Loop(body ...Code) Code { return wrap(0x03, body) }

// Block is block … end.
func Block(body ...Code) Code { return wrap(0x02, body) }

// If is if … end.
func If(body ...Code) Code { return wrap(0x04, body) }

func wrap(o byte, body []Code) Code {
	return Cat(Code{o, 0x40}, Cat(body...), Code{0x0b})
}

// Load32 is i32.load at an offset.
func Load32(off uint64) Code { return append(Code{0x28, 2}, Uleb(off)...) }

// Load8 is i32.load8_u at an offset.
func Load8(off uint64) Code { return append(Code{0x2d, 0}, Uleb(off)...) }

// Store8 is i32.store8 at an offset.
func Store8(off uint64) Code { return append(Code{0x3a, 0}, Uleb(off)...) }

// LoadI64 is i64.load.
func LoadI64(off uint64) Code { return append(Code{0x29, 3}, Uleb(off)...) }

// LoadF64 is f64.load.
func LoadF64(off uint64) Code { return append(Code{0x2b, 3}, Uleb(off)...) }

// Store32 is i32.store.
func Store32(off uint64) Code { return append(Code{0x36, 2}, Uleb(off)...) }

// StoreF64 is f64.store.
func StoreF64(off uint64) Code { return append(Code{0x39, 3}, Uleb(off)...) }

// StoreI64 is i64.store.
func StoreI64(off uint64) Code { return append(Code{0x37, 3}, Uleb(off)...) }

// Single instructions.
const (
	Unreachable = 0x00
	Return      = 0x0f
	Drop        = 0x1a
	I32Eqz      = 0x45
	I32Eq       = 0x46
	I32LtU      = 0x49
	I32GeU      = 0x4f
	I32Add      = 0x6a
	I32Sub      = 0x6b
	I32Mul      = 0x6c
	I32DivU     = 0x6e
	I32And      = 0x71
	I32Shl      = 0x74
	I64Mul      = 0x7e
	I64Add      = 0x7c
	F64Neg      = 0x9a
	F64Add      = 0xa0
	F64Sub      = 0xa1
	F64Mul      = 0xa2
	F64Div      = 0xa3
	F64ConvertU = 0xb8 // f64.convert_i32_u
)

// Module is a module being written. Each section appears when it has entries.
type Module struct {
	types, imports, funcs, tables, memories, globals, exports, elements, codes, datas [][]byte
	start                                                                             []byte
	custom                                                                            []byte
}

// Type adds a function type; i, l, f, d are i32, i64, f32, f64.
func (m *Module) Type(params, results string) uint64 {
	m.types = append(m.types, append(append([]byte{0x60}, valTypes(params)...), valTypes(results)...))
	return uint64(len(m.types) - 1)
}

func valTypes(s string) []byte {
	out := Uleb(uint64(len(s)))
	for _, c := range s {
		out = append(out, map[rune]byte{'i': 0x7f, 'l': 0x7e, 'f': 0x7d, 'd': 0x7c, 'v': 0x7b}[c])
	}
	return out
}

// Import adds a function import and returns its index. All imports go before
// the first function.
func (m *Module) Import(module, name, params, results string) uint64 {
	t := m.Type(params, results)
	m.imports = append(m.imports, Cat(text(module), text(name), Code{0}, Uleb(t)))
	return uint64(len(m.imports) - 1)
}

// Func adds a function with locals of the given types and returns its index;
// the body needs no final end.
func (m *Module) Func(params, results, locals string, body ...Code) uint64 {
	m.funcs = append(m.funcs, Uleb(m.Type(params, results)))
	groups := Uleb(uint64(len(locals)))
	for i := range locals {
		groups = append(groups, 1)
		groups = append(groups, valTypes(locals[i : i+1])[1])
	}
	code := Cat(groups, Cat(body...), Code{0x0b})
	m.codes = append(m.codes, Cat(Uleb(uint64(len(code))), code))
	return uint64(len(m.imports) + len(m.funcs) - 1)
}

// Next is the index that the next function will have.
func (m *Module) Next() uint64 { return uint64(len(m.imports) + len(m.funcs)) }

// Export exports a function.
func (m *Module) Export(name string, index uint64) { m.export(name, 0, index) }

// ExportMemory exports memory 0.
func (m *Module) ExportMemory(name string) { m.export(name, 2, 0) }

func (m *Module) export(name string, kind byte, index uint64) {
	m.exports = append(m.exports, Cat(text(name), Code{kind}, Uleb(index)))
}

// Memory adds a memory; max below 0 means none.
func (m *Module) Memory(minPages uint64, max int64) {
	m.memories = append(m.memories, limits(minPages, max))
}

// Table adds a table of functions.
func (m *Module) Table(entries uint64, max int64) {
	m.tables = append(m.tables, append([]byte{0x70}, limits(entries, max)...))
}

// Elements fills table 0 from entry 0.
func (m *Module) Elements(funcs ...uint64) {
	out := Cat(Code{0}, I32(0), Code{0x0b}, Uleb(uint64(len(funcs))))
	for _, f := range funcs {
		out = append(out, Uleb(f)...)
	}
	m.elements = append(m.elements, out)
}

func limits(lo uint64, hi int64) []byte {
	if hi < 0 {
		return append([]byte{0}, Uleb(lo)...)
	}
	return Cat(Code{1}, Uleb(lo), Uleb(uint64(hi)))
}

// Global adds a mutable i32 global and returns its index.
func (m *Module) Global(init int32) uint64 {
	m.globals = append(m.globals, Cat(Code{0x7f, 1}, I32(init), Code{0x0b}))
	return uint64(len(m.globals) - 1)
}

// Start sets the start function.
func (m *Module) Start(index uint64) { m.start = Uleb(index) }

// Data fills memory at an address.
func (m *Module) Data(at int32, b []byte) {
	m.datas = append(m.datas, Cat(Code{0}, I32(at), Code{0x0b}, Uleb(uint64(len(b))), b))
}

// Custom adds a custom section at the end.
func (m *Module) Custom(name string, content []byte) {
	m.custom = append(m.custom, section(0, Cat(text(name), content))...)
}

// Bytes writes the module.
func (m *Module) Bytes() []byte {
	out := []byte("\x00asm\x01\x00\x00\x00")
	add := func(id byte, entries [][]byte) {
		if len(entries) > 0 {
			body := Uleb(uint64(len(entries)))
			for _, e := range entries {
				body = append(body, e...)
			}
			out = append(out, section(id, body)...)
		}
	}
	add(1, m.types)
	add(2, m.imports)
	add(3, m.funcs)
	add(4, m.tables)
	add(5, m.memories)
	add(6, m.globals)
	add(7, m.exports)
	if m.start != nil {
		out = append(out, section(8, m.start)...)
	}
	add(9, m.elements)
	add(10, m.codes)
	add(11, m.datas)
	return append(out, m.custom...)
}

func section(id byte, content []byte) []byte {
	return Cat(Code{id}, Uleb(uint64(len(content))), content)
}

func text(s string) Code { return append(Uleb(uint64(len(s))), s...) }
