package meter

import "fmt"

// Options of one rewrite.
type Options struct {
	// MemoryMaxPages is the effective memory limit: the maximum in the output is the lesser of it and the
	// module's own. A minimum above it is refused.
	MemoryMaxPages uint32
	// StartFuel is the first value of __fuel: what runs before the first call of the refuel import. At
	// most 2^62.
	StartFuel uint64
	// Slice is the fuel that the host grants at a time, at least 1,000. It decides where checks stand,
	// not what anything costs.
	Slice uint64
}

const (
	minSlice     = 1000
	maxStartFuel = forbidden
)

// Rewrite emits the module anew with fuel metering (see the package comment). The output has no custom
// sections; function indices from the first defined function on are one higher than in the input. It depends on
// the input and the options only. The error is always an *Error.
func (m *Module) Rewrite(o Options) ([]byte, error) {
	if err := m.checkOptions(o); err != nil {
		return nil, err
	}
	e := &emitter{m: m, refuelType: uint32(len(m.types)), memoryMax: min(m.MemoryMax, o.MemoryMaxPages)}
	for i, t := range m.types {
		if len(t.Params)+len(t.Results) == 0 {
			e.refuelType = uint32(i)
			break
		}
	}
	code, err := e.codeSection(o.Slice / 10)
	if err != nil {
		return nil, err
	}
	out := append([]byte(nil), "\x00asm\x01\x00\x00\x00"...)
	out = appendSection(out, secType, e.typeSection())
	out = appendSection(out, secImport, e.importSection())
	out = appendSection(out, secFunction, e.functionSection())
	out = appendSection(out, secTable, e.tableSection())
	out = appendSection(out, secMemory, e.memorySection())
	out = appendSection(out, secGlobal, e.globalSection(o.StartFuel))
	out = appendSection(out, secExport, e.exportSection())
	if m.HasStart {
		out = appendSection(out, secStart, appendU32(nil, e.function(m.start)))
	}
	out = appendSection(out, secElement, e.elementSection())
	if m.hasCount {
		out = appendSection(out, secDataCount, appendU32(nil, uint32(len(m.data))))
	}
	return appendLarge(out, code, e.dataSection()), nil
}

// appendLarge appends the two sections that can have many MiB, each of which is moved once more.
func appendLarge(small []byte, code, data *pieces) []byte {
	const heads = 2 * (1 + 5) // an id and a length each
	out := append(make([]byte, 0, len(small)+code.size+data.size+heads), small...)
	for _, s := range []struct {
		id      byte
		content *pieces
	}{{secCode, code}, {secData, data}} {
		if s.content.size > 0 {
			out = appendU32(append(out, s.id), uint32(s.content.size))
			out = s.content.appendTo(out)
		}
	}
	return out
}

func (m *Module) checkOptions(o Options) *Error {
	switch {
	case m.HasMemory && m.MemoryMin > o.MemoryMaxPages:
		return refuse(CodeLimit, StepRewrite, fmt.Sprintf("memory minimum of %d pages", m.MemoryMin), fmt.Sprintf("at most %d", o.MemoryMaxPages))
	case o.Slice < minSlice:
		return refuse(CodeLimit, StepRewrite, fmt.Sprintf("slice of %d fuel", o.Slice), fmt.Sprintf("at least %d", minSlice))
	case o.StartFuel > maxStartFuel:
		return refuse(CodeLimit, StepRewrite, fmt.Sprintf("start fuel %d", o.StartFuel), fmt.Sprintf("at most %d", uint64(maxStartFuel)))
	}
	return nil
}

// emitter writes the sections of one output module.
type emitter struct {
	m          *Module
	refuelType uint32 // the first type () -> (), or one past the module's own
	memoryMax  uint32
}

// function maps an original function index: the refuel import stands after the module's own imports.
func (e *emitter) function(index uint32) uint32 {
	if index >= uint32(len(e.m.Imports)) {
		return index + 1
	}
	return index
}

// refuel is the index of the added import, fuel that of the added global.
func (e *emitter) refuel() uint32 { return uint32(len(e.m.Imports)) }
func (e *emitter) fuel() uint32   { return uint32(len(e.m.globals)) }

func (e *emitter) typeSection() []byte {
	types := e.m.types
	if int(e.refuelType) == len(types) {
		types = append(types[:len(types):len(types)], FuncType{})
	}
	out := appendU32(nil, uint32(len(types)))
	for _, t := range types {
		out = append(out, 0x60)
		out = appendTypes(out, t.Params)
		out = appendTypes(out, t.Results)
	}
	return out
}

func (e *emitter) importSection() []byte {
	out := appendU32(nil, uint32(len(e.m.Imports)+1))
	add := func(module, name string, typeIndex uint32) {
		out = appendText(appendText(out, module), name)
		out = appendU32(append(out, byte(KindFunc)), typeIndex)
	}
	for _, in := range e.m.Imports {
		add(in.Module, in.Name, in.typeIndex)
	}
	add(RefuelModule, RefuelName, e.refuelType)
	return out
}

func (e *emitter) functionSection() []byte {
	if len(e.m.funcs) == 0 {
		return nil
	}
	out := appendU32(nil, uint32(len(e.m.funcs)))
	for _, t := range e.m.funcs {
		out = appendU32(out, t)
	}
	return out
}

func (e *emitter) tableSection() []byte {
	if len(e.m.tables) == 0 {
		return nil
	}
	out := appendU32(nil, uint32(len(e.m.tables)))
	for _, t := range e.m.tables {
		out = append(out, byte(t.kind), 1)
		out = appendU32(appendU32(out, t.min), t.max)
	}
	return out
}

func (e *emitter) memorySection() []byte {
	if !e.m.HasMemory {
		return nil
	}
	return appendU32(appendU32([]byte{1, 1}, e.m.MemoryMin), e.memoryMax)
}

func (e *emitter) globalSection(startFuel uint64) []byte {
	out := appendU32(nil, uint32(len(e.m.globals)+1))
	for _, g := range e.m.globals {
		out = append(out, byte(g.kind), flag(g.mutable))
		out = e.constant(out, g.init)
	}
	out = append(out, byte(I64), 1)
	return appendConst(out, constExpr{op: opI64Const, lo: startFuel})
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func (e *emitter) exportSection() []byte {
	out := appendU32(nil, uint32(len(e.m.Exports)+1))
	for _, x := range e.m.Exports {
		index := x.Index
		if x.Kind == KindFunc {
			index = e.function(index)
		}
		out = appendU32(append(appendText(out, x.Name), byte(x.Kind)), index)
	}
	return appendU32(append(appendText(out, FuelGlobal), byte(KindGlobal)), e.fuel())
}

// constant writes a constant expression with its function index renumbered.
func (e *emitter) constant(out []byte, c constExpr) []byte {
	if c.op == opRefFunc {
		c.a = e.function(c.a)
	}
	return appendConst(out, c)
}

func (e *emitter) elementSection() []byte {
	if len(e.m.elements) == 0 {
		return nil
	}
	out := appendU32(nil, uint32(len(e.m.elements)))
	for i := range e.m.elements {
		out = e.element(out, &e.m.elements[i])
	}
	return out
}

// element writes a segment in the form that fits its mode; an active one names table 0 only where its
// reference type must be told.
func (e *emitter) element(out []byte, s *element) []byte {
	form := [...]byte{modeActive: 0, modePassive: 1, modeDeclared: 3}[s.mode]
	typed := s.mode != modeActive || s.kind != FuncRef
	if s.exprs {
		form |= 4
	}
	if s.mode == modeActive && typed {
		form |= 2
	}
	out = append(out, form)
	if s.mode == modeActive {
		if typed {
			out = append(out, 0)
		}
		out = e.constant(out, s.offset)
	}
	switch {
	case typed && s.exprs:
		out = append(out, byte(s.kind))
	case typed:
		out = append(out, 0)
	}
	out = appendU32(out, uint32(len(s.entries)))
	for _, c := range s.entries {
		if s.exprs {
			out = e.constant(out, c)
		} else {
			out = appendU32(out, e.function(c.a))
		}
	}
	return out
}
