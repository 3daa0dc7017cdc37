package meter

import "encoding/binary"

// The encoder writes canonical (shortest) forms only. Each function appends to out and returns it.

func appendU32(out []byte, v uint32) []byte {
	return binary.AppendUvarint(out, uint64(v))
}

func appendSigned(out []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if (v == 0 && c&0x40 == 0) || (v == -1 && c&0x40 != 0) {
			return append(out, c)
		}
		out = append(out, c|0x80)
	}
}

func appendText(out []byte, s string) []byte {
	return append(appendU32(out, uint32(len(s))), s...)
}

func appendTypes(out []byte, ts []ValueType) []byte {
	out = appendU32(out, uint32(len(ts)))
	for _, t := range ts {
		out = append(out, byte(t))
	}
	return out
}

// appendSection writes a section; an empty content means that there is none.
func appendSection(out []byte, id byte, content []byte) []byte {
	if len(content) == 0 {
		return out
	}
	out = append(out, id)
	out = appendU32(out, uint32(len(content)))
	return append(out, content...)
}

// appendInstr writes one instruction, the exact inverse of reader.instr.
func appendInstr(out []byte, in *instr) []byte {
	out = append(out, in.op)
	switch in.op {
	case opMisc:
		out = append(out, in.sub)
	case opVec:
		out = append(out, in.sub)
		if in.sub >= 0x80 {
			out = append(out, 0x01)
		}
	}
	switch in.imm {
	case immBlock:
		out = appendSigned(out, int64(in.lo))
	case immLabel, immFunc, immLocal, immGlobal, immTable, immData, immElement:
		out = appendU32(out, in.a)
	case immCallIndirect, immTableInit, immTableCopy:
		out = appendU32(appendU32(out, in.a), in.b)
	case immBrTable:
		out = appendU32(out, uint32(len(in.labels)))
		for _, l := range in.labels {
			out = appendU32(out, l)
		}
		out = appendU32(out, in.a)
	case immSelect:
		out = append(out, 1, byte(in.a))
	case immMemory:
		out = appendU32(appendU32(out, in.a), in.b)
	case immMemoryLane:
		out = append(appendU32(appendU32(out, in.a), in.b), in.lane)
	case immZero:
		out = append(out, 0)
	case immMemoryInit:
		out = append(appendU32(out, in.a), 0)
	case immMemoryCopy:
		out = append(out, 0, 0)
	case immI32, immI64:
		out = appendSigned(out, int64(in.lo))
	case immF32:
		out = binary.LittleEndian.AppendUint32(out, uint32(in.lo))
	case immF64:
		out = binary.LittleEndian.AppendUint64(out, in.lo)
	case immVec128:
		out = binary.LittleEndian.AppendUint64(out, in.lo)
		out = binary.LittleEndian.AppendUint64(out, in.hi)
	case immLane:
		out = append(out, in.lane)
	case immRefType:
		out = append(out, byte(in.a))
	}
	return out
}

func appendConst(out []byte, c constExpr) []byte {
	in := c.instr()
	return append(appendInstr(out, &in), opEnd)
}
