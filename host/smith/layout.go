package smith

import (
	"fmt"
)

var anyKind = []byte{I32, I32, I32, I32, I64, I64, I64, F32, F64, F64, V128, V128, FuncRef, ExternRef}

func (m *module) kind() byte { return pick(m, anyKind) }

func (m *module) kinds(most int) []byte {
	out := make([]byte, m.rnd.IntN(most+1))
	for i := range out {
		out[i] = m.kind()
	}
	return out
}

// layOut draws everything but the bodies.
func (m *module) layOut() {
	m.typeIndex(signature{})
	for range 3 + m.rnd.IntN(6) {
		m.typeIndex(signature{params: m.kinds(4), results: m.kinds(3)})
	}
	if m.o.Imports && m.chance(60) {
		m.funcs = append(m.funcs, m.typeIndex(signature{params: []byte{I64}, results: []byte{I64}}))
		m.imports++
		if m.chance(50) {
			m.funcs = append(m.funcs, 0)
			m.imports++
		}
	}
	drawn := len(m.types)
	for i := range 1 + m.rnd.IntN(m.o.Functions) {
		m.bodies = append(m.bodies, nil)
		m.funcs = append(m.funcs, m.rnd.IntN(drawn))
		m.export(fmt.Sprintf("f%d", i), 0, m.imports+i)
	}
	if m.imports > 0 && m.chance(30) {
		m.export("reexported", 0, 0)
	}
	m.layOutTable()
	m.layOutMemory()
	m.layOutGlobals()
	m.layOutStart()
}

func (m *module) export(name string, kind byte, index int) {
	m.exports = append(m.exports, export{name, kind, index})
}

func (m *module) layOutTable() {
	m.refs = FuncRef
	if m.chance(15) {
		m.refs = ExternRef
	}
	m.entries = 1 + m.rnd.Uint32N(12)
	m.most, m.bounded = m.entries+m.rnd.Uint32N(20), m.chance(85)
	for range m.rnd.IntN(4) {
		s := segment{active: m.chance(60), exprs: m.refs != FuncRef || m.chance(40)}
		for range m.rnd.IntN(int(m.entries) + 1) {
			entry := m.rnd.IntN(len(m.funcs))
			if m.refs != FuncRef || s.exprs && m.chance(20) {
				entry = -1
			}
			s.entries = append(s.entries, entry)
		}
		if s.offset = int32(m.rnd.IntN(1 + int(m.entries) - len(s.entries))); m.chance(2) {
			s.offset = int32(m.entries) - int32(len(s.entries)) // up to the end
		}
		m.elements = append(m.elements, s)
	}
}

func (m *module) layOutMemory() {
	m.pages = 1 + m.rnd.Uint32N(2)
	m.maxPages, m.noMax = m.pages+m.rnd.Uint32N(4), m.chance(15)
	m.numbered = m.chance(60)
	at := int32(m.rnd.IntN(1000))
	for range m.rnd.IntN(5) {
		s := segment{active: !m.numbered || m.chance(50), offset: at, bytes: make([]byte, m.rnd.IntN(40))}
		for i := range s.bytes {
			s.bytes[i] = byte(m.rnd.Uint32())
		}
		if m.chance(60) {
			at += int32(len(s.bytes) + m.rnd.IntN(50)) // where a loader may join neighbours
		} else {
			at = int32(m.rnd.IntN(65_000))
		}
		if m.chance(2) {
			s.offset = int32(m.pages)<<16 - int32(len(s.bytes)+m.rnd.IntN(20)) // up to the end or nearly
		}
		m.data = append(m.data, s)
	}
	m.export("memory", 2, 0)
	if m.chance(50) {
		m.export("table", 1, 0)
	}
}

func (m *module) layOutGlobals() {
	n := 1 + m.rnd.IntN(8)
	m.steps = m.rnd.IntN(n)
	for i := range n {
		g := global{kind: m.kind(), mutable: m.chance(80)}
		g.init = m.constant(g.kind)
		if g.kind == FuncRef && m.chance(70) {
			g.init = op(0xd2, m.rnd.IntN(len(m.funcs)))
		}
		if i == m.steps {
			g = global{kind: I32, mutable: true, init: constI32(m.o.Steps)}
		}
		m.globals = append(m.globals, g)
	}
	m.export("steps", 3, m.steps)
}

func (m *module) layOutStart() {
	m.start = -1
	for i := range m.bodies {
		if m.funcs[m.imports+i] == 0 && m.chance(40) {
			m.start = m.imports + i
		}
	}
}

// probe adds an exported function.
func (m *module) probe(name string, s signature, code []byte) {
	m.funcs = append(m.funcs, m.typeIndex(s))
	m.export(name, 0, len(m.funcs)-1)
	m.bodies = append(m.bodies, code)
}

// probes adds the exports that tell the state.
func (m *module) probes() {
	for i, g := range m.globals {
		kind, code := g.kind, op(0x23, i)
		if reference(kind) {
			kind, code = I32, append(code, 0xd1)
		}
		m.probe(fmt.Sprintf("global%d", i), signature{results: []byte{kind}}, join([]byte{0}, code, []byte{0x0b}))
	}
	i32 := signature{results: []byte{I32}}
	m.probe("size", i32, []byte{0, 0xfc, 16, 0, 0x0b})
	m.probe("null", i32, []byte{
		1, 2, I32, // local 0 the entry, local 1 the count
		0x02, 0x40, 0x03, 0x40,
		0x20, 0, 0xfc, 16, 0, 0x4f, 0x0d, 1,
		0x20, 1, 0x20, 0, 0x25, 0, 0xd1, 0x6a, 0x21, 1,
		0x20, 0, 0x41, 1, 0x6a, 0x21, 0,
		0x0c, 0, 0x0b, 0x0b, 0x20, 1, 0x0b,
	})
}

func reference(kind byte) bool { return kind == FuncRef || kind == ExternRef }
