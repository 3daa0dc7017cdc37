package meter

// length says which price an instruction has by its length operand, the topmost i32 of the stack.
type length byte

const (
	lengthNone length = iota
	lengthPages
	lengthBytes
	lengthElements
)

func chargedByLength(in *instr) length {
	if in.op == opMemoryGrow {
		return lengthPages
	}
	if in.op != opMisc {
		return lengthNone
	}
	switch in.sub {
	case miscMemoryInit, miscMemoryCopy, miscMemoryFill:
		return lengthBytes
	case miscTableInit, miscTableCopy, miscTableGrow, miscTableFill:
		return lengthElements
	}
	return lengthNone
}

// touchesMemory says whether an instruction loads or stores.
func touchesMemory(in *instr) bool { return in.imm == immMemory || in.imm == immMemoryLane }

// Inside a body what is left lives in a local, g.left; the global holds it wherever other code can look: in
// calls (the refuel import among them) and after the body has returned.

// spill stores the local in the global, reload reads it back.
func (g *meterer) spill(out []byte) []byte {
	out = appendU32(append(out, opLocalGet), g.left)
	return appendU32(append(out, opGlobalSet), g.e.fuel())
}

func (g *meterer) reload(out []byte) []byte {
	out = appendU32(append(out, opGlobalGet), g.e.fuel())
	return appendU32(append(out, opLocalSet), g.left)
}

// charge writes the subtraction of a price, and the check. At function entry what is left is in the global.
func (g *meterer) charge(out []byte, cost uint64, check bool) []byte {
	if g.kind == segEntry {
		out = appendU32(append(out, opGlobalGet), g.e.fuel())
	} else {
		out = appendU32(append(out, opLocalGet), g.left)
	}
	out = append(appendSigned(append(out, opI64Const), int64(cost)), opI64Sub)
	if !check {
		g.unchecked += cost
		return appendU32(append(out, opLocalSet), g.left)
	}
	g.unchecked = 0
	return g.check(out)
}

// check takes the i64 on the stack as what is left and calls the refuel import where it is below zero.
func (g *meterer) check(out []byte) []byte {
	out = appendU32(append(out, opLocalTee), g.left)
	out = append(out, opI64Const, 0, opI64LtS, opIf, 0x40)
	out = appendU32(append(g.spill(out), opCall), g.e.refuel())
	return append(g.reload(out), opEnd)
}

// loopCharge is charge at the head of a loop without parameters. The slow path goes back to the head instead of
// joining behind the check: an engine then keeps what it knows of globals and memory bounds on the way past it.
// The price is added again before it goes back, and once more charged.
func (g *meterer) loopCharge(out []byte, cost uint64) []byte {
	fuel := g.e.fuel()
	out = appendU32(append(out, opLocalGet), g.left)
	out = append(appendSigned(append(out, opI64Const), int64(cost)), opI64Sub)
	out = appendU32(append(out, opLocalTee), g.left)
	out = append(out, opI64Const, 0, opI64LtS, opIf, 0x40)
	out = appendU32(append(g.spill(out), opCall), g.e.refuel())
	out = appendU32(append(out, opGlobalGet), fuel)
	out = append(appendSigned(append(out, opI64Const), int64(cost)), opI64Add)
	out = appendU32(append(out, opLocalSet), g.left)
	g.unchecked = 0
	return append(out, opBr, 1, opEnd)
}

// lengthCharge writes the charge and check of an operation whose length is on top of the stack, and leaves
// the length there. The subtrahend is select(over, price, length > max), with the price in i64, so that no
// length wraps.
func (g *meterer) lengthCharge(out []byte, by length) []byte {
	length := func(out []byte) []byte { return appendU32(append(out, opLocalGet), g.length) }
	out = appendU32(append(out, opLocalTee), g.length)
	out = appendU32(append(out, opLocalGet), g.left)
	over, limit := int64(forbidden), g.e.memoryMax
	switch by {
	case lengthPages:
		over = int64(Fuel1.GrowPerPage)
	case lengthBytes:
		limit = uint32(Fuel1.BulkMaxBytes)
	case lengthElements:
		limit = uint32(Fuel1.BulkMaxElements)
	}
	out = appendSigned(append(out, opI64Const), over)
	out = append(length(out), opI64ExtendU)
	switch by {
	case lengthPages:
		out = append(appendSigned(append(out, opI64Const), int64(Fuel1.GrowPerPage)), opI64Mul)
	case lengthBytes:
		out = append(appendSigned(append(out, opI64Const), int64(Fuel1.BulkBytesDivisor)), opI64DivU)
	case lengthElements:
		out = append(appendSigned(append(out, opI64Const), int64(Fuel1.TablePerElement)), opI64Mul)
	}
	out = appendSigned(append(length(out), opI32Const), int64(int32(limit)))
	return g.check(append(out, opI32GtU, opSelect, opI64Sub))
}
