package smith

import (
	"encoding/binary"
	"math"
)

// constant is a constant of a kind, with a preference for the corners.
func (m *module) constant(kind byte) []byte {
	switch kind {
	case I32:
		return constI32(int32(m.integer()))
	case I64:
		return append([]byte{0x42}, sleb(m.integer())...)
	case F32:
		return binary.LittleEndian.AppendUint32([]byte{0x43}, m.float32Bits())
	case F64:
		return fixed64([]byte{0x44}, m.float64Bits())
	case V128:
		return fixed64(fixed64([]byte{0xfd, 12}, m.lanes()), m.lanes())
	}
	return []byte{0xd0, kind}
}

func (m *module) integer() int64 {
	switch m.rnd.IntN(4) {
	case 0:
		return int64(m.rnd.IntN(300)) - 100
	case 1:
		return pick(m, []int64{0, 1, -1, math.MinInt32, math.MaxInt32, math.MaxUint32, math.MinInt64, math.MaxInt64, 0x80, 0x8000, 0xffff})
	case 2:
		return int64(1) << m.rnd.IntN(64)
	}
	return int64(m.rnd.Uint64())
}

func (m *module) float32Bits() uint32 {
	if m.chance(25) {
		return uint32(m.rnd.Uint64())
	}
	return pick(m, []uint32{
		0, 1 << 31, math.Float32bits(1), math.Float32bits(-1.5), 0x7f800000, 0xff800000, 0x7fc00000, 0x7fa00001,
		0xffc12345, 1, 0x007fffff, 0x7f7fffff, math.Float32bits(2147483648), math.Float32bits(-2147483648), math.Float32bits(0.5),
	})
}

func (m *module) float64Bits() uint64 {
	if m.chance(25) {
		return m.rnd.Uint64()
	}
	f := pick(m, []float64{
		0, math.Copysign(0, -1), 1, -1.5, math.Inf(1), math.Inf(-1), math.NaN(), math.SmallestNonzeroFloat64, math.MaxFloat64,
		2147483648, -2147483649, 4294967296, 9223372036854775808, -9223372036854775808, 0.5, 1e300,
	})
	if m.chance(5) {
		return 0x7ff4000000000001 // a signalling NaN
	}
	return math.Float64bits(f)
}

// lanes is half a vector: of floats, of small integers or of any bits.
func (m *module) lanes() uint64 {
	switch m.rnd.IntN(4) {
	case 0:
		return m.float64Bits()
	case 1:
		return uint64(m.float32Bits())<<32 | uint64(m.float32Bits())
	case 2:
		return uint64(m.integer())
	}
	return m.rnd.Uint64()
}
