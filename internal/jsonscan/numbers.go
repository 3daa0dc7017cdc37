package jsonscan

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// ElementError refuses an element of an array of numbers.
type ElementError struct {
	Index int
	Value []byte // as it is written; belongs to the text
	// Whole tells that it is a whole number, but out of range.
	Whole bool
}

// Error says which element it is, and not what it holds.
func (e *ElementError) Error() string {
	if e.Whole {
		return fmt.Sprintf("element %d is out of range", e.Index)
	}
	return fmt.Sprintf("element %d is not a whole number", e.Index)
}

// Uint32s appends the numbers of the array that r stands before to dst. What is no
// whole number from 0 to 2³²−1 is an *ElementError.
func (r *Reader) Uint32s(dst []uint32) ([]uint32, error) {
	if !r.Take('[') {
		return dst, ErrNotJSON
	}
	if r.Space(); r.Take(']') {
		return dst, nil
	}
	data, pos, start := r.Data, r.Pos, len(dst)
	for {
		// The usual number has up to 7 digits and a comma after it, perhaps with a
		// space: both are in one word.
		for pos+9 <= len(data) {
			word := binary.LittleEndian.Uint64(data[pos:])
			digits := word ^ zeros
			other := ((digits + 0x7676767676767676) | digits) & highs
			n := bits.TrailingZeros64(other) &^ 7 // bits of the digits before the first other byte
			if n == 0 || n == 64 || byte(word>>n) != ',' || byte(digits) == 0 && n > 8 {
				break
			}
			dst = append(dst, uint32(number(digits<<(64-n))))
			pos = after(pos, n)
			if data[pos] == ' ' {
				pos++
			}
		}
		r.Pos = pos
		r.Space()
		v, err := r.whole(len(dst)-start, math.MaxUint32, false)
		if err != nil {
			return dst, err
		}
		dst = append(dst, uint32(v))
		more, err := r.next()
		if !more {
			return dst, err
		}
		pos = r.Pos
	}
}

// Hashes appends the numbers of the array that r stands before to dst: any 64-bit
// number, signed or not, as its bits. What is no such number is an *ElementError.
func Hashes[T ~uint64](r *Reader, dst []T) ([]T, error) {
	if !r.Take('[') {
		return dst, ErrNotJSON
	}
	if r.Space(); r.Take(']') {
		return dst, nil
	}
	for start := len(dst); ; {
		v, err := r.whole(len(dst)-start, math.MaxUint64, true)
		if err != nil {
			return dst, err
		}
		dst = append(dst, T(v))
		more, err := r.next()
		if !more {
			return dst, err
		}
	}
}

// after is where the text goes on after a number of n bits of digits and its comma. It
// branches so that the processor guesses the length, mostly right, and reads on before
// it knows.
func after(pos, n int) int {
	switch n {
	case 40:
		return pos + 6
	case 48:
		return pos + 7
	case 32:
		return pos + 5
	case 24:
		return pos + 4
	}
	return pos + n/8 + 1
}

const zeros, highs = 0x3030303030303030, 0x8080808080808080

// number is the value of eight decimal digits, one a byte, the first the lowest.
func number(digits uint64) uint64 {
	const pairs, high, low = 0x000000ff000000ff, 100 + 1000000<<32, 1 + 10000<<32
	digits = digits*10 + digits>>8
	return (digits&pairs*high + digits>>16&pairs*low) >> 32
}

// next skips what stands between two elements; more is false at the end of the array,
// and where there is neither.
func (r *Reader) next() (more bool, err error) {
	r.Space()
	if r.Take(',') {
		r.Space()
		return true, nil
	}
	if !r.Take(']') {
		err = ErrNotJSON
	}
	return false, err
}

// whole reads an element that is a whole number up to limit; signed allows down to
// −2⁶³, as its bits.
func (r *Reader) whole(i int, limit uint64, signed bool) (uint64, error) {
	start := r.Pos
	negative := signed && r.Take('-')
	if negative {
		limit = 1 << 63
	}
	first, v := r.Pos, uint64(0)
	for r.Pos+8 <= len(r.Data) && r.Pos-first < 16 { // 16 digits fit in any case
		digits := binary.LittleEndian.Uint64(r.Data[r.Pos:]) ^ zeros
		if ((digits+0x7676767676767676)|digits)&highs != 0 {
			break
		}
		v = v*1e8 + number(digits)
		r.Pos += 8
	}
	over := false
	for ; r.Pos < len(r.Data); r.Pos++ {
		c := r.Data[r.Pos] - '0'
		if c > 9 {
			break
		}
		high, low := bits.Mul64(v, 10)
		sum, carry := bits.Add64(low, uint64(c), 0)
		over = over || high|carry != 0
		v = sum
	}
	n := r.Pos - first
	if c := r.Peek(); n == 0 || over || v > limit || r.Data[first] == '0' && n > 1 || c == '.' || c == 'e' || c == 'E' {
		r.Pos = start
		return 0, r.refuse(i)
	}
	if negative {
		v = -v
	}
	return v, nil
}

// refuse says what is wrong with the element that r stands before.
func (r *Reader) refuse(i int) error {
	raw, err := r.Value()
	if err != nil {
		return err
	}
	if c := r.Peek(); c >= '0' && c <= '9' {
		return ErrNotJSON // a leading zero
	}
	e := &ElementError{Index: i, Value: raw, Whole: raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9'}
	for _, c := range raw {
		if c == '.' || c == 'e' || c == 'E' {
			e.Whole = false
		}
	}
	return e
}
