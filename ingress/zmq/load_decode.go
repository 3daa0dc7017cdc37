package zmq

import (
	"encoding/binary"
	"fmt"

	"github.com/routerd/routerd/ingress/wire"
)

// loadTag is the first element of a load message's array.
const loadTag = "LoadStat"

// maxLoad is the largest number of requests or tokens that is believed.
const maxLoad = 1 << 40

// decodeLoad reads the payload of a load message: an array of loadTag, running and
// waiting requests, tokens held and tokens that there is room for; what follows is
// left alone. A number that is nil, negative or absurd is unknown (-1), and no room
// is unknown too. It wraps wire.ErrCorrupt.
func decodeLoad(payload []byte) (Load, error) {
	c := loadCursor{payload}
	n, ok := c.array()
	if !ok || n < 5 {
		return Load{}, fmt.Errorf("read load message: %w: no array of at least 5", wire.ErrCorrupt)
	}
	if tag, ok := c.text(); !ok || string(tag) != loadTag {
		return Load{}, fmt.Errorf("read load message: %w: its tag is not %s", wire.ErrCorrupt, loadTag)
	}
	var numbers [4]int64
	for i := range numbers {
		if numbers[i], ok = c.number(); !ok {
			return Load{}, fmt.Errorf("read load message: %w: no number at place %d", wire.ErrCorrupt, i+1)
		}
	}
	l := Load{Running: numbers[0], Waiting: numbers[1], Tokens: numbers[2], MaxTokens: numbers[3]}
	if l.MaxTokens == 0 {
		l.MaxTokens = -1
	}
	return l, nil
}

// loadCursor reads the few kinds of msgpack values of a load message.
type loadCursor struct{ rest []byte }

// take consumes n bytes.
func (c *loadCursor) take(n int) ([]byte, bool) {
	if n > len(c.rest) {
		return nil, false
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b, true
}

// unsigned consumes a big-endian number of so many bytes.
func (c *loadCursor) unsigned(size int) (uint64, bool) {
	b, ok := c.take(size)
	if !ok {
		return 0, false
	}
	var wide [8]byte
	copy(wide[8-size:], b)
	return binary.BigEndian.Uint64(wide[:]), true
}

// array consumes an array's header.
func (c *loadCursor) array() (int, bool) {
	t, ok := c.take(1)
	switch {
	case !ok:
		return 0, false
	case t[0]&0xf0 == 0x90:
		return int(t[0] & 0x0f), true
	case t[0] == 0xdc || t[0] == 0xdd:
		n, ok := c.unsigned(2 << (t[0] - 0xdc))
		return int(n), ok
	}
	return 0, false
}

// text consumes a string.
func (c *loadCursor) text() ([]byte, bool) {
	t, ok := c.take(1)
	switch {
	case !ok:
		return nil, false
	case t[0]&0xe0 == 0xa0:
		return c.take(int(t[0] & 0x1f))
	case t[0] == 0xd9:
		n, ok := c.unsigned(1)
		if !ok {
			return nil, false
		}
		return c.take(int(n))
	}
	return nil, false
}

// number consumes a whole number or nil; -1 stands for one that is not believed.
func (c *loadCursor) number() (int64, bool) {
	t, ok := c.take(1)
	if !ok {
		return 0, false
	}
	switch b := t[0]; {
	case b <= 0x7f:
		return int64(b), true
	case b == 0xc0 || b >= 0xe0: // nil; a small negative number
		return -1, true
	case b >= 0xcc && b <= 0xcf: // unsigned
		n, ok := c.unsigned(1 << (b - 0xcc))
		return believed(n), ok
	case b >= 0xd0 && b <= 0xd3: // signed
		size := 1 << (b - 0xd0)
		n, ok := c.unsigned(size)
		if n>>(8*size-1) != 0 {
			return -1, ok
		}
		return believed(n), ok
	}
	return 0, false
}

func believed(n uint64) int64 {
	if n > maxLoad {
		return -1
	}
	return int64(n)
}
