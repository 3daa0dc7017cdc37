// Package cursor reads our own binary forms from bytes that may be anything: it never
// reads beyond them, and remembers the first thing that is wrong. It holds no state of
// its own.
//
//	c := cursor.New(b)
//	name := string(c.Bytes(c.AtMost(256)))
//	if err := c.End(); err != nil {
package cursor

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errEarly = errors.New("it ends early")

// Cursor reads bytes from the front on. What its methods return after an error means
// nothing, but numbers are 0 then and bytes none. One goroutine owns it.
type Cursor struct {
	rest []byte
	err  error
}

// New returns a cursor at the beginning of b, which must not change while it is used.
func New(b []byte) *Cursor { return &Cursor{rest: b} }

// Err is the first error.
func (c *Cursor) Err() error { return c.err }

// Fail has what was read be wrong for a reason of the caller's.
func (c *Cursor) Fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
	c.rest = nil
}

// Rest is what was not read yet, and none after an error.
func (c *Cursor) Rest() []byte { return c.rest }

// End is the first error, or one for bytes that are left.
func (c *Cursor) End() error {
	if n := len(c.rest); n > 0 {
		c.Fail("%d bytes too many", n)
	}
	return c.err
}

// Number reads an unsigned varint.
func (c *Cursor) Number() uint64 {
	n, size := binary.Uvarint(c.rest)
	if size <= 0 {
		c.Fail("%w", errEarly)
		return 0
	}
	c.rest = c.rest[size:]
	return n
}

// Signed reads a signed varint.
func (c *Cursor) Signed() int64 {
	n, size := binary.Varint(c.rest)
	if size <= 0 {
		c.Fail("%w", errEarly)
		return 0
	}
	c.rest = c.rest[size:]
	return n
}

// AtMost reads an unsigned varint that may be no larger than most.
func (c *Cursor) AtMost(most int) int {
	n := c.Number()
	if n > uint64(max(most, 0)) {
		c.Fail("%d where at most %d is allowed", n, most)
		return 0
	}
	return int(n)
}

// Count is AtMost for how many of something follow that have at least so many bytes
// each; more than there is room for is an error.
func (c *Cursor) Count(each int) int {
	n := c.Number()
	if n > uint64(len(c.rest)/each) {
		c.Fail("%w", errEarly)
		return 0
	}
	return int(n)
}

// Bytes reads n bytes. They are those of the source.
func (c *Cursor) Bytes(n int) []byte {
	if n > len(c.rest) {
		c.Fail("%w", errEarly)
		return nil
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

// Byte reads one byte.
func (c *Cursor) Byte() byte {
	if b := c.Bytes(1); len(b) > 0 {
		return b[0]
	}
	return 0
}

// Uint64 reads 8 bytes, the lowest first.
func (c *Cursor) Uint64() uint64 {
	if b := c.Bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}
