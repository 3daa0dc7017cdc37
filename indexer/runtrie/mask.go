package runtrie

import "math/bits"

// Mask is a set of positions of a node.
type Mask struct{ lo, hi uint64 }

// Positions is the set of the positions from one up to, and without, another.
func Positions(from, to uint32) Mask { return first(to).Minus(first(from)) }

// first are the positions below n.
func first(n uint32) Mask {
	switch {
	case n >= 128:
		return Mask{^uint64(0), ^uint64(0)}
	case n >= 64:
		return Mask{^uint64(0), 1<<(n-64) - 1}
	}
	return Mask{1<<n - 1, 0}
}

// Has tells whether a position is in the set.
func (m Mask) Has(pos uint32) bool {
	if pos < 64 {
		return m.lo>>pos&1 != 0
	}
	return m.hi>>(pos-64)&1 != 0
}

// or is the union of two sets.
func (m Mask) or(o Mask) Mask { return Mask{m.lo | o.lo, m.hi | o.hi} }

// Minus is the set without the positions of another.
func (m Mask) Minus(o Mask) Mask { return Mask{m.lo &^ o.lo, m.hi &^ o.hi} }

// count is how many positions there are.
func (m Mask) count() uint32 { return uint32(bits.OnesCount64(m.lo) + bits.OnesCount64(m.hi)) }

// lead is how many positions from 0 on are in the set without a hole.
func (m Mask) lead() uint32 {
	if m.lo != ^uint64(0) {
		return uint32(bits.TrailingZeros64(^m.lo))
	}
	return 64 + uint32(bits.TrailingZeros64(^m.hi))
}
