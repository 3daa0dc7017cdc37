package meter

import "fmt"

// instr is one decoded instruction: everything that the encoder needs and nothing of its bytes.
type instr struct {
	op     byte
	sub    byte      // after 0xfc or 0xfd
	imm    immediate // form of the immediates
	lane   byte
	a, b   uint32 // index, depth, second index, alignment, offset; value type or reference type in a
	lo, hi uint64 // constants (i32 and i64 sign-extended); the block type, sign-extended, in lo
	labels []uint32
}

// emptyBlock is the block type without parameters and results.
const emptyBlock = -0x40

// constExpr is a constant expression: one instruction, its end implied.
type constExpr struct {
	op     byte
	a      uint32
	lo, hi uint64
}

func (c constExpr) instr() instr {
	in := instr{op: c.op, imm: opImmediates[c.op], a: c.a, lo: c.lo, hi: c.hi}
	if c.op == opVec {
		in.sub, in.imm = vecConst, immVec128
	}
	return in
}

// instr decodes the next instruction into in, reusing its labels. Ranges of indices are the caller's
// business (body.check); forms are judged here, so that no engine can read the bytes differently.
func (r *reader) instr(in *instr, lim *Limits) {
	labels := in.labels[:0]
	*in = instr{op: r.byte("instruction"), labels: labels}
	in.imm = opImmediates[in.op]
	switch in.imm {
	case immMisc:
		in.sub = r.byte("0xfc sub-opcode")
		if in.sub > miscLast {
			r.malformed(fmt.Sprintf("instruction 0xfc 0x%02x", in.sub), "0xfc with one byte up to 0x11")
			return
		}
		in.imm = miscImmediates[in.sub]
	case immVec:
		in.sub = r.vectorSub()
		in.imm = vecImmediates[in.sub]
	}
	if in.imm == immUndefined && r.err == nil {
		r.malformed(fmt.Sprintf("instruction 0x%02x (sub-opcode %d)", in.op, in.sub),
			"core 2.0 and SIMD, without threads, tail calls, exceptions and relaxed SIMD")
		return
	}
	r.immediates(in, lim)
}

// vectorSub reads the sub-opcode after 0xfd: one byte below 0x80, or two with 0x01 as the second.
func (r *reader) vectorSub() byte {
	c := r.byte("0xfd sub-opcode")
	if c < 0x80 {
		return c
	}
	if second := r.byte("0xfd sub-opcode"); second != 0x01 {
		r.malformed(fmt.Sprintf("instruction 0xfd 0x%02x 0x%02x", c, second), "0xfd with one byte below 0x80, or two with 0x01 as the second")
		return 0
	}
	return c
}

func (r *reader) immediates(in *instr, lim *Limits) {
	switch in.imm {
	case immBlock:
		in.lo = uint64(r.blockType())
	case immLabel, immFunc, immLocal, immGlobal, immTable, immData, immElement:
		in.a = r.u32("index")
	case immCallIndirect, immTableInit, immTableCopy:
		in.a, in.b = r.u32("index"), r.u32("index")
	case immBrTable:
		r.brTable(in, lim)
	case immSelect:
		if n := r.u32("select types"); n != 1 && r.err == nil {
			r.malformed(fmt.Sprintf("select with %d types", n), "one type")
		}
		in.a = uint32(r.valueType("select type"))
	case immMemory, immMemoryLane:
		r.memoryArgument(in)
	case immZero:
		r.zero()
	case immMemoryInit:
		in.a = r.u32("data index")
		r.zero()
	case immMemoryCopy:
		r.zero()
		r.zero()
	case immI32:
		in.lo = uint64(r.signed(32, "i32 constant"))
	case immI64:
		in.lo = uint64(r.signed(64, "i64 constant"))
	case immF32:
		in.lo = uint64(r.fixed32("f32 constant"))
	case immF64:
		in.lo = r.fixed64("f64 constant")
	case immVec128:
		in.lo, in.hi = r.fixed64("v128 immediate"), r.fixed64("v128 immediate")
	case immLane:
		in.lane = r.byte("lane")
	case immRefType:
		in.a = uint32(r.referenceType("reference type"))
	}
}

func (r *reader) brTable(in *instr, lim *Limits) {
	n := r.count(lim.BrTable, "br_table labels")
	for range n {
		in.labels = append(in.labels, r.u32("label"))
	}
	in.a = r.u32("label")
}

// memoryArgument reads alignment and offset. An exponent over 4 would be a flag of another proposal.
func (r *reader) memoryArgument(in *instr) {
	in.a = r.u32("alignment")
	if in.a > 4 && r.err == nil {
		r.malformed(fmt.Sprintf("alignment 2^%d", in.a), "at most 2^4, memory 0")
	}
	in.b = r.u32("offset")
	if in.imm == immMemoryLane {
		in.lane = r.byte("lane")
	}
}

func (r *reader) zero() {
	if c := r.byte("memory index"); c != 0 && r.err == nil {
		r.malformed(fmt.Sprintf("memory index 0x%02x", c), "memory 0 as one zero byte")
	}
}

// blockType reads 0x40, a value type, or a type index of up to 33 bits in its signed form.
func (r *reader) blockType() int64 {
	if r.left() > 0 {
		if c := r.b[r.off]; c >= 0x40 && c < 0x80 {
			r.off++
			if c == 0x40 || ValueType(c).valid() {
				return int64(c) - 0x80
			}
			r.malformed(fmt.Sprintf("block type 0x%02x", c), "0x40, a value type or a type index")
			return emptyBlock
		}
	}
	v := r.signed(33, "block type")
	if v < 0 {
		r.malformed("negative block type in more than one byte", "0x40, a value type or a type index")
		return emptyBlock
	}
	return v
}

func (r *reader) valueType(what string) ValueType {
	t := ValueType(r.byte(what))
	if !t.valid() && r.err == nil {
		r.malformed(fmt.Sprintf("%s 0x%02x", what, byte(t)), "i32, i64, f32, f64, v128, funcref or externref")
	}
	return t
}

func (r *reader) referenceType(what string) ValueType {
	t := ValueType(r.byte(what))
	if !t.reference() && r.err == nil {
		r.malformed(fmt.Sprintf("%s 0x%02x", what, byte(t)), "funcref or externref")
	}
	return t
}
