package smith

import "slices"

const (
	maxDepth = 24 // of values inside values and blocks inside blocks
	maxOpen  = 12 // blocks
)

// body makes one function. Values are made on the operand stack from the top down: value leaves exactly one value of
// its kind, statement leaves the stack as it was. After an instruction that never falls through the same holds of the
// stack as the validator sees it, so both may end anywhere in such an instruction.
type body struct {
	*module
	out    []byte
	sig    signature
	locals []byte
	marks  [3]int // scratch locals of f32, f64 and v128, to look at a result
	labels []target
	depth  int
	budget int
}

// target is an open block: what a branch to it carries.
type target struct {
	carries []byte
	loop    bool
}

func (m *module) body(t int) []byte {
	sig := m.types[t]
	b := &body{module: m, sig: sig, budget: 1 + m.o.Size/4 + m.rnd.IntN(m.o.Size)}
	b.locals = slices.Clone(sig.params)
	groups := b.declare()
	b.labels = []target{{carries: sig.results}}
	b.step()
	for b.budget > 0 && !b.chance(8) {
		b.statement()
	}
	b.values(sig.results)
	return join(vector(groups), b.out, []byte{0x0b})
}

// declare draws the locals, at times so many that joins cost something, and adds the scratch ones.
func (b *body) declare() [][]byte {
	var groups [][]byte
	group := func(n int, kind byte) {
		groups = append(groups, append(uleb(n), kind))
		b.locals = append(b.locals, slices.Repeat([]byte{kind}, n)...)
	}
	for range b.rnd.IntN(5) {
		n := b.rnd.IntN(4)
		if b.chance(10) {
			n = b.rnd.IntN(60)
		}
		group(n, b.kind())
	}
	for i, kind := range []byte{F32, F64, V128} {
		b.marks[i] = len(b.locals) + i // not in locals: nothing else may read what an engine chose
		groups = append(groups, []byte{1, kind})
	}
	return groups
}

func (b *body) emit(code ...byte) { b.out = append(b.out, code...) }

func (b *body) index(code byte, n int) { b.emit(op(code, n)...) }

// step takes one from the countdown.
func (b *body) step() {
	b.index(0x23, b.steps)
	b.emit(0x45, 0x04, 0x40, 0x00, 0x0b)
	b.index(0x23, b.steps)
	b.emit(0x41, 1, 0x6b)
	b.index(0x24, b.steps)
}

func (b *body) values(kinds []byte) {
	for _, kind := range kinds {
		b.value(kind)
	}
}

// enter counts a value or statement; false when only a leaf is left to make.
func (b *body) enter() bool {
	b.budget--
	b.depth++
	return b.budget > 0 && b.depth < maxDepth
}

// value leaves one value.
func (b *body) value(kind byte) {
	defer func() { b.depth-- }()
	if !b.enter() {
		b.leaf(kind)
		return
	}
	switch n := b.rnd.IntN(100); {
	case n < 20:
		b.leaf(kind)
	case n < 62 && !reference(kind):
		b.instruction(kind)
	case n < 72:
		b.blockValue(kind)
	case n < 80:
		b.callValue(kind)
	case n < 85:
		b.selectValue(kind)
	case n < 90:
		b.tee(kind)
	case n < 94:
		b.branchValue(kind)
	case n < 95:
		b.neverReturns()
	default:
		b.special(kind)
	}
}

// keepFirst drops all results but the first.
func (b *body) keepFirst(results []byte) {
	for range len(results) - 1 {
		b.emit(0x1a)
	}
}

// leaf is a constant, a local or a global.
func (b *body) leaf(kind byte) {
	places := b.places(kind, b.locals)
	switch n := b.rnd.IntN(10); {
	case n < 5 && len(places) > 0:
		b.index(0x20, pick(b.module, places))
		return
	case n < 7:
		for i, g := range b.globals {
			if g.kind == kind && b.chance(60) {
				b.index(0x23, i)
				return
			}
		}
	}
	b.emit(b.constant(kind)...)
}

func (b *body) places(kind byte, in []byte) []int {
	var places []int
	for i, k := range in {
		if k == kind {
			places = append(places, i)
		}
	}
	return places
}

// instruction is one of the catalogue with its operands.
func (b *body) instruction(kind byte) {
	in := pick(b.module, b.catalogue.byResult[kind])
	if in.Traps && !b.chance(15) {
		in = pick(b.module, b.catalogue.byResult[kind])
	}
	b.operate(&in)
}

func (b *body) operate(in *Instruction) {
	for i, kind := range in.Params {
		if i == 0 && (in.Shape == Memory || in.Shape == MemoryLane) {
			b.address()
			continue
		}
		b.value(kind)
	}
	b.raw(in)
	b.canonical(in)
}

// address is nearly always one inside the memory.
func (b *body) address() {
	b.value(I32)
	if !b.chance(3) {
		b.emit(append(constI32(0x7fff), 0x71)...)
	}
}

// raw writes the instruction alone.
func (b *body) raw(in *Instruction) {
	b.emit(in.Code...)
	switch in.Shape {
	case Memory, MemoryLane:
		b.emit(uleb(b.rnd.IntN(int(in.Align) + 1))...)
		offset := b.rnd.IntN(1000)
		if b.chance(1) {
			offset = 65_536 * b.rnd.IntN(65_536)
		}
		b.emit(uleb(offset)...)
		if in.Shape == MemoryLane {
			b.emit(byte(b.rnd.IntN(int(in.Lanes))))
		}
	case Lane:
		b.emit(byte(b.rnd.IntN(int(in.Lanes))))
	case Shuffle:
		for range 16 {
			b.emit(byte(b.rnd.IntN(32)))
		}
	case Const:
		b.emit(fixed64(fixed64(nil, b.lanes()), b.lanes())...)
	}
}

// canonical replaces a NaN, whose bits the engine may choose, by one NaN.
func (b *body) canonical(in *Instruction) {
	if in.FloatBits == 0 {
		return
	}
	const nan32, nan64 = 0x7fc00000, 0x7ff8000000000000
	mark := b.marks[2]
	look := func(constant []byte, equal ...byte) {
		b.index(0x22, mark)
		b.emit(constant...)
		b.index(0x20, mark)
		b.index(0x20, mark)
		b.emit(equal...)
	}
	switch kind := in.Results[0]; {
	case kind == F32:
		mark = b.marks[0]
		look([]byte{0x43, 0, 0, 0xc0, 0x7f}, 0x5b, 0x1b)
	case kind == F64:
		mark = b.marks[1]
		look(fixed64([]byte{0x44}, nan64), 0x61, 0x1b)
	case in.FloatBits == 32:
		const both = nan32<<32 | nan32
		look(fixed64(fixed64([]byte{0xfd, 12}, both), both), 0xfd, 65, 0xfd, 82)
	default:
		look(fixed64(fixed64([]byte{0xfd, 12}, nan64), nan64), 0xfd, 71, 0xfd, 82)
	}
}

// selectValue is select, with its type where it must have one.
func (b *body) selectValue(kind byte) {
	b.value(kind)
	b.value(kind)
	b.value(I32)
	if reference(kind) || b.chance(30) {
		b.emit(0x1c, 1, kind)
		return
	}
	b.emit(0x1b)
}

// tee writes a local on the way.
func (b *body) tee(kind byte) {
	places := b.places(kind, b.locals)
	b.value(kind)
	if len(places) > 0 {
		b.index(0x22, pick(b.module, places))
	}
}

// special is a value that looks at the memory, the table or a reference.
func (b *body) special(kind byte) {
	switch {
	case kind == I32:
		switch b.rnd.IntN(5) {
		case 0:
			b.emit(0x3f, 0)
		case 1:
			b.value(I32)
			if !b.chance(5) {
				b.emit(0x41, 3, 0x71)
			}
			b.emit(0x40, 0)
		case 2:
			b.emit(0xfc, 16, 0)
		case 3:
			b.value(pick(b.module, []byte{FuncRef, ExternRef}))
			b.emit(0xd1)
		case 4:
			b.growTable()
		}
	case kind == b.refs:
		b.entry()
		b.emit(0x25, 0)
	default:
		b.leaf(kind)
	}
}

// growTable never asks for more than an operation may have, and never grows what has no maximum: a host may keep both
// from working.
func (b *body) growTable() {
	if !b.bounded {
		b.emit(0xfc, 16, 0)
		return
	}
	b.value(b.refs)
	b.value(I32)
	mask := int32(7)
	if b.chance(10) {
		mask = 0xffff
	}
	b.emit(append(constI32(mask), 0x71, 0xfc, 15, 0)...)
}

// entry is nearly always an index of the table.
func (b *body) entry() {
	b.value(I32)
	if !b.chance(5) {
		b.emit(append(constI32(int32(b.entries)), 0x70)...)
	}
}
