package smith

// statement does something and leaves the stack as it was.
func (b *body) statement() {
	defer func() { b.depth-- }()
	if !b.enter() {
		b.emit(0x01)
		return
	}
	switch n := b.rnd.IntN(100); {
	case n < 18:
		kind := b.kind()
		b.value(kind)
		b.store(kind)
	case n < 28:
		b.setGlobal()
	case n < 48:
		in := pick(b.module, b.catalogue.stores)
		b.operate(&in)
	case n < 62:
		s := signature{}
		if b.chance(40) {
			s = signature{params: b.kinds(2), results: b.kinds(2)}
		}
		b.block(s)
		b.consume(s.results)
	case n < 70:
		depth, t := b.aim()
		b.branchIf(depth, t)
		b.consume(t.carries)
	case n < 76:
		b.value(I32)
		b.emit(0x04, 0x40)
		b.labels = append(b.labels, target{})
		b.neverReturns()
		b.labels = b.labels[:len(b.labels)-1]
		b.emit(0x0b)
	case n < 84:
		f := b.rnd.IntN(len(b.funcs))
		s := b.types[b.funcs[f]]
		b.call(f, s)
		b.consume(s.results)
	case n < 92:
		b.bulkMemory()
	case n < 98:
		b.tables()
	case n < 99:
		b.neverReturns()
	default:
		b.emit(0x01)
	}
}

func (b *body) setGlobal() {
	i := b.rnd.IntN(len(b.globals))
	if g := b.globals[i]; g.mutable && i != b.steps {
		b.value(g.kind)
		b.index(0x24, i)
	}
}

// length is the length of a memory operation.
func (b *body) length(most int32) {
	b.value(I32)
	if !b.o.Unbounded || !b.chance(5) {
		b.emit(append(constI32(most), 0x71)...)
	}
}

func (b *body) bulkMemory() {
	most := int32(0xff)
	if b.chance(10) {
		most = 0xffff
	}
	switch b.rnd.IntN(5) {
	case 0:
		b.address()
		b.value(I32)
		b.length(most)
		b.emit(0xfc, 11, 0)
	case 1, 2:
		b.address()
		b.address()
		b.length(most)
		b.emit(0xfc, 10, 0, 0)
	case 3:
		if b.numbered && len(b.data) > 0 {
			b.address()
			b.value(I32)
			b.emit(0x41, 7, 0x71)
			b.length(15)
			b.emit(0xfc, 8)
			b.emit(uleb(b.rnd.IntN(len(b.data)))...)
			b.emit(0)
		}
	case 4:
		if b.numbered && len(b.data) > 0 && b.chance(30) {
			b.emit(0xfc, 9)
			b.emit(uleb(b.rnd.IntN(len(b.data)))...)
		}
	}
}

func (b *body) tables() {
	few := func() {
		b.value(I32)
		b.emit(0x41, 3, 0x71)
	}
	switch b.rnd.IntN(6) {
	case 0:
		b.entry()
		b.value(b.refs)
		b.emit(0x26, 0)
	case 1:
		b.entry()
		b.value(b.refs)
		few()
		b.emit(0xfc, 17, 0)
	case 2:
		b.entry()
		b.entry()
		few()
		b.emit(0xfc, 14, 0, 0)
	case 3:
		if len(b.elements) > 0 {
			b.entry()
			few()
			few()
			b.emit(0xfc, 12)
			b.emit(uleb(b.rnd.IntN(len(b.elements)))...)
			b.emit(0)
		}
	case 4:
		if len(b.elements) > 0 && b.chance(30) {
			b.emit(0xfc, 13)
			b.emit(uleb(b.rnd.IntN(len(b.elements)))...)
		}
	case 5:
		b.growTable()
		b.emit(0x1a)
	}
}
