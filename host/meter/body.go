package meter

import "fmt"

// localGroup is a run of declared locals of one type.
type localGroup struct {
	count uint32
	kind  ValueType
}

// walker decodes one body instruction by instruction and keeps the stack of open blocks. It is the only
// way to read a body: Decode runs it to check, Rewrite runs it again to emit.
type walker struct {
	m      *Module
	r      reader
	index  uint32 // original function index, for messages
	groups []localGroup
	locals uint32 // parameters + declared locals
	loops  int    // so far
	open   []byte // opBlock, opLoop, opIf or opElse for each open block, the body itself first (opBlock)
	in     instr
	hasLen bool
}

// begin starts on the i-th defined function: it reads the local declarations.
func (w *walker) begin(i int) {
	b := &w.m.bodies[i]
	w.index = uint32(len(w.m.Imports) + i)
	w.r = reader{b: b.code, base: b.offset, step: StepBodies}
	w.groups, w.hasLen, w.loops = w.groups[:0], false, 0
	w.open = append(w.open[:0], opBlock)
	declared := uint64(0)
	for range w.r.count(w.m.limits.BodyBytes, "local declarations") {
		g := localGroup{count: w.r.u32("number of locals"), kind: w.r.valueType("local type")}
		if declared += uint64(g.count); declared > uint64(w.m.limits.LocalsPerFunction) {
			w.r.over(fmt.Sprintf("locals of function %d", w.index), declared, w.m.limits.LocalsPerFunction)
		}
		if w.r.err != nil {
			return
		}
		if g.count > 0 {
			w.groups = append(w.groups, g)
		}
	}
	w.locals = uint32(len(w.m.typeOf(w.index).Params)) + uint32(declared)
}

// next decodes the next instruction into w.in and checks it; false at the end of the body or after an
// error. An else or end is reported after it changed the stack: the last end leaves it empty.
func (w *walker) next() bool {
	if w.r.err != nil {
		return false
	}
	if len(w.open) == 0 {
		if w.r.left() > 0 {
			w.r.malformed(fmt.Sprintf("function %d: %d bytes after its end", w.index, w.r.left()), "nothing after the last end")
		}
		return false
	}
	w.r.instr(&w.in, &w.m.limits)
	if w.r.err == nil {
		w.check()
	}
	if w.r.err == nil {
		w.structure()
	}
	return w.r.err == nil
}

// structure keeps the stack of open blocks.
func (w *walker) structure() {
	top := len(w.open) - 1
	switch w.in.op {
	case opBlock, opLoop, opIf:
		if top >= w.m.limits.Nesting {
			w.r.over(fmt.Sprintf("nesting in function %d", w.index), uint64(top+1), w.m.limits.Nesting)
			return
		}
		w.open = append(w.open, w.in.op)
		w.countLoop()
	case opElse:
		if w.open[top] != opIf {
			w.fault("else outside an if", "an else that belongs to an if")
			return
		}
		w.open[top] = opElse
	case opEnd:
		w.open = w.open[:top]
	}
}

func (w *walker) countLoop() {
	if w.in.op != opLoop {
		return
	}
	if w.loops++; w.loops > w.m.limits.Loops {
		w.r.over(fmt.Sprintf("loops of function %d", w.index), uint64(w.loops), w.m.limits.Loops)
	}
}

func (w *walker) fault(item, allowed string) {
	w.r.malformed(fmt.Sprintf("function %d: %s", w.index, item), allowed)
}

// below checks an index against the size of its space. It is what keeps a guest from naming the hidden
// global, the refuel import and the added locals.
func (w *walker) below(index uint32, n int, what string) {
	if uint64(index) >= uint64(n) {
		w.fault(fmt.Sprintf("%s %d", what, index), fmt.Sprintf("below %d", n))
	}
}

func (w *walker) check() {
	in, m := &w.in, w.m
	switch in.imm {
	case immBlock:
		w.checkBlock(int64(in.lo))
	case immLabel:
		w.below(in.a, len(w.open), "label")
	case immBrTable:
		for _, l := range in.labels {
			w.below(l, len(w.open), "label")
		}
		w.below(in.a, len(w.open), "label")
	case immFunc:
		w.below(in.a, int(m.functions()), "function index")
		if in.op == opRefFunc && w.r.err == nil {
			// The engine makes a new reference each time and keeps it for the instance's life.
			w.r.fail(CodeLimit, fmt.Sprintf("ref.func in function %d", w.index), "ref.func in element segments and global initialisers only")
		}
	case immCallIndirect:
		w.below(in.a, len(m.types), "type index")
		w.below(in.b, len(m.tables), "table index")
	case immLocal:
		w.below(in.a, int(w.locals), "local index")
	case immGlobal:
		w.below(in.a, len(m.globals), "global index")
	case immTable:
		w.below(in.a, len(m.tables), "table index")
	case immMemory, immMemoryLane, immZero, immMemoryCopy:
		w.needMemory()
	case immMemoryInit:
		w.needMemory()
		w.checkData()
	case immData:
		w.checkData()
	case immElement:
		w.below(in.a, len(m.elements), "element segment")
	case immTableInit:
		w.below(in.a, len(m.elements), "element segment")
		w.below(in.b, len(m.tables), "table index")
	case immTableCopy:
		w.below(in.a, len(m.tables), "table index")
		w.below(in.b, len(m.tables), "table index")
	}
	w.hasLen = w.hasLen || chargedByLength(in) != lengthNone
}

func (w *walker) needMemory() {
	if !w.m.HasMemory {
		w.fault("memory instruction without a memory", "a memory")
	}
}

func (w *walker) checkData() {
	if !w.m.hasCount {
		w.fault("data segment instruction without a data count section", "a data count section")
	}
	w.below(w.in.a, len(w.m.data), "data segment")
}

func (w *walker) checkBlock(bt int64) {
	if bt < 0 {
		return
	}
	if bt >= int64(len(w.m.types)) {
		w.fault(fmt.Sprintf("block type %d", bt), fmt.Sprintf("a type below %d", len(w.m.types)))
		return
	}
	t := w.m.types[bt]
	if n := len(t.Params) + len(t.Results); n > w.m.limits.BlockTypeValues {
		w.r.over(fmt.Sprintf("block type values in function %d", w.index), uint64(n), w.m.limits.BlockTypeValues)
	}
}

// checkBodies decodes every body once and notes what the rewrite must know beforehand.
func (m *Module) checkBodies() *Error {
	w := walker{m: m}
	var declared uint64
	for i := range m.bodies {
		w.begin(i)
		for w.next() {
		}
		if w.r.err != nil {
			return w.r.err
		}
		b := &m.bodies[i]
		b.locals, b.hasLength = w.locals, w.hasLen
		for _, g := range w.groups {
			declared += uint64(g.count)
		}
		if declared*8 > uint64(m.limits.LocalsBytes) {
			return refuse(CodeLimit, StepBodies, fmt.Sprintf("locals of functions up to %d: %d bytes", w.index, declared*8), fmt.Sprintf("at most %d (%d locals)", m.limits.LocalsBytes, m.limits.LocalsBytes/8))
		}
	}
	return nil
}
