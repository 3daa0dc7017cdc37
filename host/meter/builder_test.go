package meter_test

import (
	"encoding/binary"
	"math"

	"github.com/routerd/routerd/host/wasmtest"
)

// A small writer of wasm modules for tests. It writes whatever it is told, right or wrong.

const (
	i32, i64, f32, f64, v128 = 0x7f, 0x7e, 0x7d, 0x7c, 0x7b
	funcref, externref       = 0x70, 0x6f
)

// cat joins bytes, small ints, strings and slices.
func cat(parts ...any) []byte {
	var out []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			out = append(out, byte(p))
		case byte:
			out = append(out, p)
		case string:
			out = append(out, p...)
		case []byte:
			out = append(out, p...)
		default:
			panic("cat: unknown part")
		}
	}
	return out
}

func uleb(v uint64) []byte { return wasmtest.Uleb(v) }

func sleb(v int64) []byte { return wasmtest.Sleb(v) }

func str(s string) []byte { return cat(uleb(uint64(len(s))), s) }

func vec(items ...[]byte) []byte {
	out := uleb(uint64(len(items)))
	for _, it := range items {
		out = append(out, it...)
	}
	return out
}

func section(id int, content []byte) []byte { return cat(id, uleb(uint64(len(content))), content) }

const header = "\x00asm\x01\x00\x00\x00"

func i32c(v int32) []byte { return cat(0x41, sleb(int64(v))) }
func i64c(v int64) []byte { return cat(0x42, sleb(v)) }
func f64c(v float64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{0x44}, math.Float64bits(v))
}
func get(i uint64) []byte { return cat(0x20, uleb(i)) }
func set(i uint64) []byte { return cat(0x21, uleb(i)) }
func tee(i uint64) []byte { return cat(0x22, uleb(i)) }

// builder collects a module. Each section is written when it has entries.
type builder struct {
	types, imports, funcs, tables, memories, globals, exports, elements, codes, datas [][]byte
	start                                                                             []byte
	count                                                                             bool
	customs                                                                           []byte
}

func (b *builder) typ(params, results []byte) uint64 {
	b.types = append(b.types, cat(0x60, uleb(uint64(len(params))), params, uleb(uint64(len(results))), results))
	return uint64(len(b.types) - 1)
}

// imp adds a function import. Imports go before functions.
func (b *builder) imp(module, name string, t uint64) uint64 {
	b.imports = append(b.imports, cat(str(module), str(name), 0, uleb(t)))
	return uint64(len(b.imports) - 1)
}

// fn adds a function; locals are the groups already encoded, code has no final end.
func (b *builder) fn(t uint64, locals [][]byte, code ...any) uint64 {
	b.funcs = append(b.funcs, uleb(t))
	body := cat(vec(locals...), cat(code...), 0x0b)
	b.codes = append(b.codes, cat(uleb(uint64(len(body))), body))
	return uint64(len(b.imports) + len(b.funcs) - 1)
}

func group(n uint64, kind int) []byte { return cat(uleb(n), kind) }

func (b *builder) export(name string, kind int, index uint64) {
	b.exports = append(b.exports, cat(str(name), kind, uleb(index)))
}

func (b *builder) memory(lo uint64, hi ...uint64) {
	b.memories = append(b.memories, limitsOf(lo, hi))
}

func (b *builder) table(kind int, lo uint64, hi ...uint64) {
	b.tables = append(b.tables, cat(kind, limitsOf(lo, hi)))
}

func limitsOf(lo uint64, hi []uint64) []byte {
	if len(hi) == 0 {
		return cat(0, uleb(lo))
	}
	return cat(1, uleb(lo), uleb(hi[0]))
}

func (b *builder) custom(name string, content []byte) {
	b.customs = append(b.customs, section(0, cat(str(name), content))...)
}

func (b *builder) bytes() []byte {
	out := []byte(header)
	add := func(id int, entries [][]byte) {
		if len(entries) > 0 {
			out = append(out, section(id, vec(entries...))...)
		}
	}
	add(1, b.types)
	add(2, b.imports)
	add(3, b.funcs)
	add(4, b.tables)
	add(5, b.memories)
	add(6, b.globals)
	add(7, b.exports)
	if b.start != nil {
		out = append(out, section(8, b.start)...)
	}
	add(9, b.elements)
	if b.count {
		out = append(out, section(12, uleb(uint64(len(b.datas))))...)
	}
	add(10, b.codes)
	add(11, b.datas)
	return append(out, b.customs...)
}

// void is a module with one type () -> () and one function of it.
func void(locals [][]byte, code ...any) *builder {
	b := &builder{}
	b.fn(b.typ(nil, nil), locals, code...)
	return b
}
