package meter

import (
	"fmt"
	"slices"
)

// segmentKind says what begins a segment.
type segmentKind byte

const (
	segEntry     segmentKind = iota // the function: entry price, always checked
	segLoop                         // the head of a loop without parameters: always checked
	segParamLoop                    // the head of a loop with parameters: always checked
	segJoin                         // if, else, end or br_if
	segSplit                        // the rest of a segment that grew too long to be charged at once
	segNoCode                       // after br, br_table, return, unreachable: never executed, not charged
)

// afterCall is the largest price of a segment after a call that goes unchecked. It has no room for a load.
const afterCall = 3

// label is an open block with what is known of the paths to its end. "Unchecked" is the most fuel that any
// path can have been charged since its last check.
type label struct {
	op        byte
	targeted  bool
	unchecked uint64 // the most over the branches to the end
	atIf      uint64 // at the if, for the path that skips it
}

// meterer emits one body at a time. Guest instructions gather in seg; when the segment ends its price is known
// and the charge goes before it.
type meterer struct {
	e         *emitter
	w         walker
	out       []byte // body under construction
	seg       []byte
	kind      segmentKind
	cost      uint64
	called    bool // the segment holds a call
	unchecked uint64
	most      uint64 // the bound of unchecked
	surcharge uint64 // for each segment but the first
	labels    []label
	dead      int    // blocks open in code that is never executed; they are not in labels
	length    uint32 // local index of the added i32
	left      uint32 // local index of the added i64
}

// codeSection is the content of the section, empty without bodies.
func (e *emitter) codeSection(most uint64) (*pieces, error) {
	out := &pieces{}
	if len(e.m.bodies) == 0 {
		return out, nil
	}
	g := &meterer{e: e, w: walker{m: e.m}, most: most}
	out.add(appendU32(nil, uint32(len(e.m.bodies))))
	var size []byte
	for i := range e.m.bodies {
		if err := g.body(i); err != nil {
			return nil, err
		}
		if size, most := out.size+len(g.out), e.m.limits.OutputBytes; size > most {
			return nil, refuse(CodeLimit, StepRewrite, fmt.Sprintf("metered bodies up to function %d: %d bytes", g.w.index, size), fmt.Sprintf("at most %d", most))
		}
		size = appendU32(size[:0], uint32(len(g.out)))
		out.add(size)
		out.add(g.out)
	}
	return out, nil
}

// body emits the i-th defined function into g.out.
func (g *meterer) body(i int) *Error {
	b := &g.e.m.bodies[i]
	g.w.begin(i)
	g.declareLocals(b)
	g.surcharge = uint64(b.locals) / Fuel1.LocalsDivisor
	g.labels = append(g.labels[:0], label{op: opBlock})
	g.unchecked, g.dead = 0, 0
	g.open(segEntry)
	g.cost = Fuel1.EntryBase + uint64(len(b.code))/Fuel1.EntryBodyDivisor
	for g.w.next() {
		if !g.skip(&g.w.in) {
			g.instruction(&g.w.in)
		}
	}
	g.close()
	if g.w.r.err != nil {
		g.w.r.err.Step = StepRewrite
		return g.w.r.err
	}
	return nil
}

// declareLocals writes the guest's locals and ours behind them.
func (g *meterer) declareLocals(b *body) {
	groups := g.w.groups
	g.left, g.length = b.locals, b.locals+1
	groups = append(groups, localGroup{1, I64})
	if b.hasLength {
		groups = append(groups, localGroup{1, I32})
	}
	g.out = appendU32(g.out[:0], uint32(len(groups)))
	for _, l := range groups {
		g.out = append(appendU32(g.out, l.count), byte(l.kind))
	}
}

// skip says whether an instruction is in code that is never executed, which is left out: all but the else or end
// of the block that it is in. A branch there still names its block, as the price of the block's end says.
func (g *meterer) skip(in *instr) bool {
	if g.kind != segNoCode {
		return false
	}
	switch in.op {
	case opBlock, opLoop, opIf:
		g.dead++
	case opElse:
		return g.dead > 0
	case opEnd:
		if g.dead == 0 {
			return false
		}
		g.dead--
	case opBr, opBrIf:
		g.named(in.a)
	case opBrTable:
		for _, depth := range in.labels {
			g.named(depth)
		}
		g.named(in.a)
	}
	return true
}

// named notes a branch in dead code, out of the blocks open there.
func (g *meterer) named(depth uint32) {
	if d := int(depth) - g.dead; d >= 0 {
		g.labels[len(g.labels)-1-d].targeted = true
	}
}

// instruction adds one guest instruction and ends the segment where control can leave or join.
func (g *meterer) instruction(in *instr) {
	if in.op == opElse || in.op == opEnd {
		g.delimiter(in)
		return
	}
	g.cost += Fuel1.Instruction
	if touchesMemory(in) {
		g.cost += Fuel1.MemoryAccess
	}
	if by := chargedByLength(in); by != lengthNone {
		g.seg = g.lengthCharge(g.seg, by)
	}
	if in.imm == immFunc {
		in.a = g.e.function(in.a)
	}
	if g.leaves(in) {
		g.seg = g.spill(g.seg)
	}
	g.seg = appendInstr(g.seg, in)
	switch in.op {
	case opBlock:
		g.labels = append(g.labels, label{op: opBlock})
	case opLoop:
		g.close()
		g.labels = append(g.labels, label{op: opLoop})
		if bt := int64(in.lo); bt >= 0 && len(g.e.m.types[bt].Params) > 0 {
			g.open(segParamLoop)
		} else {
			g.open(segLoop)
		}
	case opIf:
		g.close()
		g.labels = append(g.labels, label{op: opIf, atIf: g.unchecked})
		g.open(segJoin)
	case opBrIf:
		g.close()
		g.target(in.a)
		g.open(segJoin)
	case opBr, opBrTable, opReturn, opUnreachable:
		g.close()
		g.targets(in)
		g.open(segNoCode)
	case opCall, opCallIndirect:
		g.called = true
		g.seg = g.reload(g.seg)
	}
	if g.cost >= g.most && g.kind != segNoCode {
		g.close()
		g.open(segSplit)
	}
}

// leaves says whether control can leave the body here, for a callee or for good.
func (g *meterer) leaves(in *instr) bool {
	outermost := uint32(len(g.labels) - 1)
	switch in.op {
	case opCall, opCallIndirect, opReturn, opUnreachable:
		return true
	case opBr, opBrIf:
		return in.a == outermost
	case opBrTable:
		return in.a == outermost || slices.Contains(in.labels, outermost)
	}
	return false
}

// delimiter handles else and end, which cost nothing and may join paths.
func (g *meterer) delimiter(in *instr) {
	if len(g.labels) == 1 && g.kind != segNoCode {
		g.seg = g.spill(g.seg)
	}
	g.seg = appendInstr(g.seg, in)
	top := &g.labels[len(g.labels)-1]
	if in.op == opElse {
		g.close()
		g.fallInto(top)
		top.op, g.unchecked = opElse, top.atIf
		g.open(segJoin)
		return
	}
	l := *top
	if len(g.labels) == 1 || l.op == opLoop || (l.op == opBlock && !l.targeted) {
		g.labels = g.labels[:len(g.labels)-1] // one way in, or nothing after: the segment goes on
		if g.kind == segNoCode && len(g.labels) > 0 {
			g.seg = append(g.seg, opUnreachable) // what would use the block's results is left out
		}
		return
	}
	g.close()
	g.fallInto(&l)
	if l.op == opIf {
		l.unchecked = max(l.unchecked, l.atIf)
	}
	g.labels = g.labels[:len(g.labels)-1]
	g.unchecked = l.unchecked
	g.open(segJoin)
}

// fallInto notes the path that reaches the end of a block from above.
func (g *meterer) fallInto(l *label) {
	if g.kind != segNoCode {
		l.unchecked = max(l.unchecked, g.unchecked)
	}
}

func (g *meterer) targets(in *instr) {
	switch in.op {
	case opBrTable:
		for _, depth := range in.labels {
			g.target(depth)
		}
		g.target(in.a)
	case opBr:
		g.target(in.a)
	}
}

// target notes a branch. To a loop head it needs no note: a check stands there.
func (g *meterer) target(depth uint32) {
	l := &g.labels[len(g.labels)-1-int(depth)]
	l.targeted = true
	l.unchecked = max(l.unchecked, g.unchecked)
}

// open begins a segment.
func (g *meterer) open(kind segmentKind) {
	g.kind, g.cost, g.called, g.seg = kind, 0, false, g.seg[:0]
	if kind == segLoop || kind == segParamLoop || kind == segJoin {
		g.cost = g.surcharge
	}
}

// close ends the segment: its charge, and a check where one is due, then its instructions.
func (g *meterer) close() {
	switch {
	case g.kind == segNoCode:
	case g.kind == segEntry:
		g.out = g.charge(g.out, g.cost, true)
	case g.kind == segLoop:
		g.out = g.loopCharge(g.out, max(g.cost, 1))
	case g.kind == segParamLoop:
		g.out = g.charge(g.out, max(g.cost, 1), true)
	case g.cost > 0:
		g.out = g.charge(g.out, g.cost, g.unchecked+g.cost > g.most)
	}
	if g.called {
		g.unchecked = max(g.unchecked, g.most-afterCall)
	}
	g.out = append(g.out, g.seg...)
}
