package smith

import (
	"encoding/binary"
	"slices"
)

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

func uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func sleb(v int64) []byte {
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

// op is an instruction with one index.
func op(code byte, n int) []byte { return append([]byte{code}, uleb(n)...) }

func constI32(v int32) []byte { return append([]byte{0x41}, sleb(int64(v))...) }

func text(s string) []byte { return append(uleb(len(s)), s...) }

func vector(items [][]byte) []byte { return append(uleb(len(items)), slices.Concat(items...)...) }

func section(id byte, items [][]byte) []byte {
	if len(items) == 0 {
		return nil
	}
	return whole(id, vector(items))
}

func whole(id byte, content []byte) []byte { return join([]byte{id}, uleb(len(content)), content) }

func each[T any](of []T, f func(T) []byte) [][]byte {
	out := make([][]byte, len(of))
	for i, v := range of {
		out[i] = f(v)
	}
	return out
}

func (m *module) encode() []byte {
	limits := func(lo, hi uint32, bounded bool) []byte {
		if !bounded {
			return op(0, int(lo))
		}
		return append(op(1, int(lo)), uleb(int(hi))...)
	}
	out := join([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, each(m.types, func(s signature) []byte {
			return join([]byte{0x60}, text(string(s.params)), text(string(s.results)))
		})),
		section(2, m.encodeImports()),
		section(3, each(m.funcs[m.imports:], uleb)),
		section(4, [][]byte{append([]byte{m.refs}, limits(m.entries, m.most, m.bounded)...)}),
		section(5, [][]byte{limits(m.pages, m.maxPages, !m.noMax)}),
		section(6, each(m.globals, func(g global) []byte {
			mutable := byte(0)
			if g.mutable {
				mutable = 1
			}
			return join([]byte{g.kind, mutable}, g.init, []byte{0x0b})
		})),
		section(7, each(m.exports, func(e export) []byte { return join(text(e.name), []byte{e.kind}, uleb(e.index)) })))
	if m.start >= 0 {
		out = append(out, whole(8, uleb(m.start))...)
	}
	out = append(out, section(9, each(m.elements, m.encodeElement))...)
	if m.numbered {
		out = append(out, whole(12, uleb(len(m.data)))...)
	}
	out = append(out, section(10, each(m.bodies, func(b []byte) []byte { return text(string(b)) }))...)
	return append(out, section(11, each(m.data, func(s segment) []byte {
		if !s.active {
			return join([]byte{1}, text(string(s.bytes)))
		}
		return join([]byte{0}, constI32(s.offset), []byte{0x0b}, text(string(s.bytes)))
	}))...)
}

func (m *module) encodeImports() [][]byte {
	names := []string{"mix", "tick"}
	out := make([][]byte, m.imports)
	for i := range out {
		out[i] = join(text("smith"), text(names[i]), []byte{0}, uleb(m.funcs[i]))
	}
	return out
}

func (m *module) encodeElement(s segment) []byte {
	var out []byte
	form := byte(1)
	if s.active {
		form = 0
		if m.refs != FuncRef {
			form = 2
		}
	}
	if s.exprs {
		form |= 4
	}
	out = append(out, form)
	if form&2 != 0 {
		out = append(out, 0)
	}
	if s.active {
		out = append(append(out, constI32(s.offset)...), 0x0b)
	}
	if form&3 != 0 {
		kind := byte(0)
		if s.exprs {
			kind = m.refs
		}
		out = append(out, kind)
	}
	return append(out, vector(each(s.entries, func(f int) []byte {
		switch {
		case !s.exprs:
			return uleb(f)
		case f < 0:
			return []byte{0xd0, m.refs, 0x0b}
		}
		return append(op(0xd2, f), 0x0b)
	}))...)
}

func fixed64(out []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(out, v) }
