package meter

// Opcodes that the decoder or the rewrite name; all others are known by their immediates alone.
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opSelect       = 0x1b
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opLoadFirst    = 0x28
	opStoreLast    = 0x3e
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI32GtU       = 0x4b
	opI64LtS       = 0x53
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Mul       = 0x7e
	opI64DivU      = 0x80
	opI64ExtendU   = 0xad
	opRefNull      = 0xd0
	opRefFunc      = 0xd2
	opMisc         = 0xfc
	opVec          = 0xfd
)

// Sub-opcodes after 0xfc that are charged by their length.
const (
	miscMemoryInit = 8
	miscMemoryCopy = 10
	miscMemoryFill = 11
	miscTableInit  = 12
	miscTableCopy  = 14
	miscTableGrow  = 15
	miscTableFill  = 17
	miscLast       = 17
)

const vecConst = 12 // 0xfd 12 is v128.const

// immediate is the form of what follows an opcode.
type immediate byte

const (
	immUndefined immediate = iota // no such instruction
	immNone
	immBlock        // block type
	immLabel        // label depth
	immBrTable      // vector of depths and a default
	immFunc         // function index
	immCallIndirect // type index, table index
	immSelect       // vector of one value type
	immLocal
	immGlobal
	immTable
	immMemory // alignment exponent, offset
	immZero   // the memory index as one zero byte
	immI32
	immI64
	immF32
	immF64
	immRefType
	immData
	immElement
	immMemoryInit // data index, zero byte
	immMemoryCopy // two zero bytes
	immTableInit  // element index, table index
	immTableCopy  // two table indices
	immVec128     // 16 bytes: a constant or shuffle lanes
	immLane
	immMemoryLane // alignment exponent, offset, lane
	immMisc       // prefix 0xfc
	immVec        // prefix 0xfd
)

var (
	opImmediates   = opcodeTable()
	miscImmediates = [miscLast + 1]immediate{
		immNone, immNone, immNone, immNone, immNone, immNone, immNone, immNone, // saturating truncation
		immMemoryInit, immData, immMemoryCopy, immZero,
		immTableInit, immElement, immTableCopy, immTable, immTable, immTable,
	}
	vecImmediates = vectorTable()
)

func opcodeTable() (t [256]immediate) {
	span := func(first, last int, imm immediate) {
		for op := first; op <= last; op++ {
			t[op] = imm
		}
	}
	span(0x00, 0x01, immNone) // unreachable, nop
	span(opBlock, opIf, immBlock)
	t[opElse], t[opEnd], t[opReturn] = immNone, immNone, immNone
	span(opBr, opBrIf, immLabel)
	t[opBrTable] = immBrTable
	t[opCall], t[opCallIndirect] = immFunc, immCallIndirect
	span(0x1a, opSelect, immNone) // drop, select
	t[0x1c] = immSelect
	span(opLocalGet, opLocalTee, immLocal)
	span(opGlobalGet, opGlobalSet, immGlobal)
	span(0x25, 0x26, immTable) // table.get, table.set
	span(opLoadFirst, opStoreLast, immMemory)
	span(opMemorySize, opMemoryGrow, immZero)
	t[opI32Const], t[opI64Const], t[opF32Const], t[opF64Const] = immI32, immI64, immF32, immF64
	span(0x45, 0xc4, immNone) // comparison, arithmetic, conversion, sign extension
	t[opRefNull], t[0xd1], t[opRefFunc] = immRefType, immNone, immFunc
	t[opMisc], t[opVec] = immMisc, immVec
	return t
}

// vectorTable has the 236 instructions of the fixed-width SIMD proposal; relaxed SIMD starts at 256.
func vectorTable() (t [256]immediate) {
	for sub := range t {
		switch {
		case sub <= 11, sub == 92, sub == 93:
			t[sub] = immMemory
		case sub == vecConst, sub == 13:
			t[sub] = immVec128
		case sub >= 21 && sub <= 34:
			t[sub] = immLane
		case sub >= 84 && sub <= 91:
			t[sub] = immMemoryLane
		default:
			t[sub] = immNone
		}
	}
	for _, sub := range []int{154, 162, 165, 166, 175, 176, 178, 179, 180, 187, 194, 197, 198, 207, 208, 210, 211, 212, 226, 238} {
		t[sub] = immUndefined
	}
	return t
}
