package wire

import (
	"encoding/binary"
)

// maxDepth is how deep arrays and maps may be nested in a payload.
const maxDepth = 16

// cursor reads msgpack from buf. A structural fault (truncation, an invalid byte, too deep nesting) sets bad, and
// every later read then fails. A value of an unexpected type makes a read return false and moves nothing.
type cursor struct {
	buf []byte
	pos int
	bad bool
}

func (c *cursor) left() int { return len(c.buf) - c.pos }

func (c *cursor) fail() { c.bad, c.pos = true, len(c.buf) }

// peek returns the first byte of the next value.
func (c *cursor) peek() (byte, bool) {
	if c.pos >= len(c.buf) {
		c.fail()
		return 0, false
	}
	return c.buf[c.pos], true
}

// uintAt reads a big-endian number of size bytes that begins off bytes from here.
func (c *cursor) uintAt(off, size int) (uint64, bool) {
	if c.left() < off+size {
		c.fail()
		return 0, false
	}
	b := c.buf[c.pos+off:]
	switch size {
	case 1:
		return uint64(b[0]), true
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), true
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), true
	default:
		return binary.BigEndian.Uint64(b), true
	}
}

// isNil consumes a nil and reports whether there was one.
func (c *cursor) isNil() bool {
	if t, ok := c.peek(); ok && t == 0xc0 {
		c.pos++
		return true
	}
	return false
}

// array consumes an array header. The count never exceeds the bytes left.
func (c *cursor) array() (int, bool) {
	return c.header(0x90, 0xdc, 1)
}

// mapping consumes a map header. Twice the count never exceeds the bytes left.
func (c *cursor) mapping() (int, bool) {
	return c.header(0x80, 0xde, 2)
}

func (c *cursor) header(fix, wide byte, perItem int) (int, bool) {
	t, ok := c.peek()
	if !ok {
		return 0, false
	}
	var n uint64
	size := 0
	switch {
	case t&0xf0 == fix:
		n = uint64(t & 0x0f)
	case t == wide:
		size = 2
	case t == wide+1:
		size = 4
	default:
		return 0, false
	}
	if size > 0 {
		if n, ok = c.uintAt(1, size); !ok {
			return 0, false
		}
	}
	if n*uint64(perItem) > uint64(c.left()-1-size) {
		c.fail()
		return 0, false
	}
	c.pos += 1 + size
	return int(n), true
}

// integer consumes an integer of any width. neg tells that bits are the two's complement of a negative number.
func (c *cursor) integer() (bits uint64, neg, ok bool) {
	t, ok := c.peek()
	if !ok {
		return 0, false, false
	}
	switch {
	case t <= 0x7f:
		c.pos++
		return uint64(t), false, true
	case t >= 0xe0:
		c.pos++
		return uint64(int64(int8(t))), true, true
	case t < 0xcc || t > 0xd3:
		return 0, false, false
	}
	size := 1 << (t & 3)
	if bits, ok = c.uintAt(1, size); !ok {
		return 0, false, false
	}
	c.pos += 1 + size
	if t < 0xd0 {
		return bits, false, true
	}
	shift := 64 - 8*uint(size)
	signed := int64(bits<<shift) >> shift
	return uint64(signed), signed < 0, true
}

// text consumes a string, or a byte string when raw is set too. The slice aliases the payload.
func (c *cursor) text(raw bool) ([]byte, bool) {
	t, ok := c.peek()
	if !ok {
		return nil, false
	}
	size, n := 0, uint64(0)
	switch {
	case t&0xe0 == 0xa0:
		n = uint64(t & 0x1f)
	case t >= 0xd9 && t <= 0xdb:
		size = 1 << (t - 0xd9)
	case raw && t >= 0xc4 && t <= 0xc6:
		size = 1 << (t - 0xc4)
	default:
		return nil, false
	}
	if size > 0 {
		if n, ok = c.uintAt(1, size); !ok {
			return nil, false
		}
	}
	if n > uint64(c.left()-1-size) {
		c.fail()
		return nil, false
	}
	start := c.pos + 1 + size
	c.pos = start + int(n)
	return c.buf[start:c.pos], true
}

// skip passes over the next value, whatever it is. depth is how many arrays and maps already surround it.
func (c *cursor) skip(depth int) {
	var open [maxDepth]uint64
	level := 0
	open[0] = 1
	for {
		for open[level] == 0 {
			if level == 0 {
				return
			}
			level--
		}
		open[level]--
		items, ok := c.skipOne()
		if !ok {
			return
		}
		if items == 0 {
			continue
		}
		if level++; level+depth >= maxDepth {
			c.fail()
			return
		}
		open[level] = items
	}
}

// skipOne passes over one scalar or one header and returns how many values belong to that header.
func (c *cursor) skipOne() (items uint64, ok bool) {
	t, ok := c.peek()
	if !ok {
		return 0, false
	}
	switch {
	case t <= 0x7f, t >= 0xe0, t == 0xc0, t == 0xc2, t == 0xc3:
		return 0, c.advance(1)
	case t&0xf0 == 0x80, t == 0xde, t == 0xdf:
		n, ok := c.mapping()
		return uint64(n) * 2, ok
	case t&0xf0 == 0x90, t == 0xdc, t == 0xdd:
		n, ok := c.array()
		return uint64(n), ok
	case t&0xe0 == 0xa0, t >= 0xd9 && t <= 0xdb, t >= 0xc4 && t <= 0xc6:
		_, ok := c.text(true)
		return 0, ok
	case t == 0xca:
		return 0, c.advance(5)
	case t == 0xcb:
		return 0, c.advance(9)
	case t >= 0xcc && t <= 0xd3:
		return 0, c.advance(1 + 1<<(t&3))
	case t >= 0xd4 && t <= 0xd8:
		return 0, c.advance(2 + 1<<(t-0xd4))
	case t >= 0xc7 && t <= 0xc9:
		size := 1 << (t - 0xc7)
		n, ok := c.uintAt(1, size)
		if !ok || n > uint64(c.left()) {
			c.fail()
			return 0, false
		}
		return 0, c.advance(2 + size + int(n))
	}
	c.fail()
	return 0, false
}

func (c *cursor) advance(n int) bool {
	if c.left() < n {
		c.fail()
		return false
	}
	c.pos += n
	return true
}
