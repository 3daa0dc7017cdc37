package smith

// blockType writes the type of a block.
func (b *body) blockType(s signature) {
	switch {
	case len(s.params) == 0 && len(s.results) == 0 && !b.chance(10):
		b.emit(0x40)
	case len(s.params) == 0 && len(s.results) == 1 && !b.chance(10):
		b.emit(s.results[0])
	default:
		b.emit(sleb(int64(b.typeIndex(s)))...)
	}
}

// blockValue is a block, loop or if that leaves a value of a kind, and others that are dropped.
func (b *body) blockValue(kind byte) {
	s := signature{results: []byte{kind}}
	if b.chance(30) {
		s.results = append(s.results, b.kinds(2)...)
	}
	if b.chance(40) {
		s.params = b.kinds(2)
	}
	b.block(s)
	b.keepFirst(s.results)
}

// block is a block, loop or if of a type with its operands.
func (b *body) block(s signature) {
	if len(b.labels) > maxOpen {
		b.values(s.results)
		return
	}
	b.values(s.params)
	switch b.rnd.IntN(3) {
	case 0:
		b.emit(0x02)
		b.blockType(s)
		b.inside(target{carries: s.results}, s)
	case 1:
		b.emit(0x03)
		b.blockType(s)
		b.loop(s)
	case 2:
		b.value(I32)
		b.emit(0x04)
		b.blockType(s)
		b.inside(target{carries: s.results}, s)
		if !sameKinds(s) || b.chance(70) {
			b.emit(0x05)
			b.inside(target{carries: s.results}, s)
		}
	}
	b.emit(0x0b)
}

func sameKinds(s signature) bool { return string(s.params) == string(s.results) }

// inside fills a block: the parameters are on the stack, the results are left.
func (b *body) inside(t target, s signature) {
	b.labels = append(b.labels, t)
	if !sameKinds(s) || b.chance(50) {
		b.consume(s.params)
		for range b.rnd.IntN(4) {
			b.statement()
		}
		b.values(s.results)
	}
	b.labels = b.labels[:len(b.labels)-1]
}

// loop fills a loop, at times with a branch back at its end.
func (b *body) loop(s signature) {
	b.labels = append(b.labels, target{carries: s.params, loop: true})
	b.consume(s.params)
	for range b.rnd.IntN(4) {
		b.statement()
	}
	if b.chance(70) {
		b.step()
		b.values(s.params)
		b.again()
		b.index(0x0d, 0)
		b.consume(s.params)
	}
	b.values(s.results)
	b.labels = b.labels[:len(b.labels)-1]
}

// consume takes values off the stack, into locals where there are some.
func (b *body) consume(kinds []byte) {
	for i := len(kinds) - 1; i >= 0; i-- {
		b.store(kinds[i])
	}
}

// store takes one value off the stack.
func (b *body) store(kind byte) {
	if places := b.places(kind, b.locals); len(places) > 0 && b.chance(80) {
		b.index(0x21, pick(b.module, places))
		return
	}
	b.emit(0x1a)
}

// aim draws a label: its depth, and what a branch to it carries.
func (b *body) aim() (depth int, t target) {
	depth = b.rnd.IntN(len(b.labels))
	return depth, b.labels[len(b.labels)-1-depth]
}

// branchValue leaves a value that a branch could have carried away.
func (b *body) branchValue(kind byte) {
	for range 4 {
		depth, t := b.aim()
		if len(t.carries) == 0 || t.carries[0] != kind {
			continue
		}
		b.branchIf(depth, t)
		b.keepFirst(t.carries)
		return
	}
	b.leaf(kind)
}

func (b *body) branchIf(depth int, t target) {
	if t.loop {
		b.step()
	}
	b.values(t.carries)
	if t.loop {
		b.again()
	} else {
		b.value(I32)
	}
	b.index(0x0d, depth)
}

// again is the condition of a branch back: mostly one that ends the loop before the countdown does.
func (b *body) again() {
	if b.chance(20) {
		b.value(I32)
		return
	}
	b.index(0x23, b.steps)
	b.emit(append(constI32(int32(1)<<b.rnd.IntN(5)-1), 0x71)...)
}

// neverReturns is an instruction that never falls through, and code behind it that is valid all the same.
func (b *body) neverReturns() {
	switch b.rnd.IntN(8) {
	case 0:
		b.emit(0x00)
	case 1, 2:
		b.values(b.sig.results)
		b.emit(0x0f)
	case 3, 4, 5:
		depth, t := b.aim()
		if t.loop {
			b.step()
		}
		b.values(t.carries)
		b.index(0x0c, depth)
	default:
		b.table()
	}
	for range b.rnd.IntN(4) {
		in := pick(b.module, b.catalogue.all)
		b.raw(&in) // operands of an unreachable stack have any kind
		for range in.Results {
			b.emit(0x1a)
		}
	}
}

// table is br_table to labels that carry the same.
func (b *body) table() {
	_, first := b.aim()
	var depths []int
	loops := false
	for range 1 + b.rnd.IntN(6) {
		depth, t := b.aim()
		if string(t.carries) == string(first.carries) {
			depths = append(depths, depth)
			loops = loops || t.loop
		}
	}
	if len(depths) == 0 {
		b.emit(0x00)
		return
	}
	if loops {
		b.step()
	}
	b.values(first.carries)
	b.value(I32)
	b.emit(append(constI32(7), 0x71)...)
	b.index(0x0e, len(depths)-1)
	for _, depth := range depths {
		b.emit(uleb(depth)...)
	}
}

// callValue calls a function whose first result is of a kind.
func (b *body) callValue(kind byte) {
	for range 4 {
		f := b.rnd.IntN(len(b.funcs))
		if s := b.types[b.funcs[f]]; len(s.results) > 0 && s.results[0] == kind {
			b.call(f, s)
			b.keepFirst(s.results)
			return
		}
	}
	b.leaf(kind)
}

// call is a call, or one through the table, which may hold another function by then.
func (b *body) call(f int, s signature) {
	b.values(s.params)
	if b.refs != FuncRef || b.chance(60) {
		b.index(0x10, f)
		return
	}
	if slot := b.slotOf(b.funcs[f]); slot >= 0 && !b.chance(10) {
		b.emit(constI32(int32(slot))...)
	} else {
		b.entry()
	}
	b.index(0x11, b.funcs[f])
	b.emit(0)
}

// slotOf is an entry of the table that holds a function of a type at first, -1 for none.
func (b *body) slotOf(t int) int {
	slot := -1
	for _, s := range b.elements {
		for i, f := range s.entries {
			if s.active && f >= 0 && b.funcs[f] == t {
				slot = int(s.offset) + i
			}
		}
	}
	return slot
}
