package meter

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// reader is a cursor over guest bytes. The first error sticks: after it every read returns zero and
// consumes nothing, so callers may check r.err once per element instead of once per byte.
type reader struct {
	b    []byte
	off  int
	base int    // offset of b[0] in the module, for messages
	step string // Step of the errors it makes
	err  *Error
}

// sub returns a reader over the next n bytes and moves past them.
func (r *reader) sub(n uint32, what string) reader {
	start := r.off
	return reader{b: r.take(n, what), base: r.base + start, step: r.step}
}

func (r *reader) fail(code, item, allowed string) {
	if r.err == nil {
		r.err = refuse(code, r.step, item, allowed)
		r.off = len(r.b)
	}
}

// malformed refuses the module as unreadable at the current offset.
func (r *reader) malformed(item, allowed string) {
	r.fail(CodeParse, fmt.Sprintf("%s at byte %d", item, r.base+r.off), allowed)
}

func (r *reader) left() int { return len(r.b) - r.off }

func (r *reader) byte(what string) byte {
	if r.off >= len(r.b) {
		r.malformed(what+" is cut off", "a complete module")
		return 0
	}
	c := r.b[r.off]
	r.off++
	return c
}

// take returns the next n bytes without copying.
func (r *reader) take(n uint32, what string) []byte {
	if uint64(n) > uint64(r.left()) {
		r.malformed(fmt.Sprintf("%s of %d bytes where %d are left", what, n, r.left()), "a length inside its section")
		return nil
	}
	s := r.b[r.off : r.off+int(n)]
	r.off += int(n)
	return s
}

// u32 reads an unsigned LEB128 of at most 5 bytes; padded forms are legal and common in linker output.
func (r *reader) u32(what string) uint32 {
	var v uint32
	for shift := uint(0); ; shift += 7 {
		c := r.byte(what)
		if shift == 28 && c > 0x0f {
			r.malformed(what+" is no 32-bit LEB128", "at most 5 bytes and 32 bits")
			return 0
		}
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
}

// signed reads a signed LEB128 of the given width; bits above the width must repeat the sign.
func (r *reader) signed(bits uint, what string) int64 {
	var v int64
	for shift := uint(0); ; {
		c := r.byte(what)
		v |= int64(c&0x7f) << shift
		used := bits - shift
		shift += 7
		if used <= 7 {
			if top := c & 0x7f >> (used - 1); c >= 0x80 || (top != 0 && top != 0x7f>>(used-1)) {
				r.malformed(fmt.Sprintf("%s is no %d-bit signed LEB128", what, bits), "a LEB128 of that width")
				return 0
			}
		}
		if c < 0x80 {
			if shift < 64 && c&0x40 != 0 {
				v |= -1 << shift
			}
			return v
		}
	}
}

func (r *reader) fixed32(what string) uint32 {
	if s := r.take(4, what); s != nil {
		return binary.LittleEndian.Uint32(s)
	}
	return 0
}

func (r *reader) fixed64(what string) uint64 {
	if s := r.take(8, what); s != nil {
		return binary.LittleEndian.Uint64(s)
	}
	return 0
}

// count reads the length of a vector: at most limit entries, and no more than bytes are left, since each
// entry takes at least one. Both hold before anything is allocated.
func (r *reader) count(limit int, what string) int {
	n := r.u32(what)
	if uint64(n) > uint64(limit) {
		r.over(what, uint64(n), limit)
		return 0
	}
	if uint64(n) > uint64(r.left()) {
		r.malformed(fmt.Sprintf("%s: %d entries in %d bytes", what, n, r.left()), "a count that its section can hold")
		return 0
	}
	return int(n)
}

// over refuses a value above a limit.
func (r *reader) over(what string, value uint64, limit int) {
	r.fail(CodeLimit, fmt.Sprintf("%s: %d", what, value), fmt.Sprintf("at most %d", limit))
}

// text reads a UTF-8 name of at most limit bytes.
func (r *reader) text(limit int, what string) string {
	n := r.u32(what)
	if uint64(n) > uint64(limit) {
		r.over(what+" length", uint64(n), limit)
		return ""
	}
	s := r.take(n, what)
	if !utf8.Valid(s) {
		r.malformed(fmt.Sprintf("%s %q", what, s), "UTF-8")
		return ""
	}
	return string(s)
}
