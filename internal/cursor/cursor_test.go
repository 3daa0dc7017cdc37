package cursor_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/routerd/routerd/internal/cursor"
)

// written has one of each kind.
func written() []byte {
	b := binary.AppendUvarint(nil, 1<<40)
	b = binary.AppendVarint(b, -7)
	b = append(b, 3, 'a', 'b', 'c', 9)
	return binary.LittleEndian.AppendUint64(b, 1<<63)
}

func read(c *cursor.Cursor) (uint64, int64, string, byte, uint64) {
	return c.Number(), c.Signed(), string(c.Bytes(c.AtMost(3))), c.Byte(), c.Uint64()
}

func TestWhatWasWrittenIsRead(t *testing.T) {
	c := cursor.New(written())
	n, s, text, b, u := read(c)
	if err := c.End(); err != nil || n != 1<<40 || s != -7 || text != "abc" || b != 9 || u != 1<<63 {
		t.Errorf("got %d, %d, %q, %d, %d, %v", n, s, text, b, u, err)
	}
}

func TestAnyOtherLengthIsAnError(t *testing.T) {
	whole := written()
	for n := range whole {
		c := cursor.New(whole[:n])
		read(c)
		if err := c.End(); err == nil || !strings.Contains(err.Error(), "ends early") {
			t.Errorf("%d bytes of %d: got %v", n, len(whole), err)
		}
	}
	c := cursor.New(append(whole, 0, 0))
	read(c)
	if err := c.End(); err == nil || err.Error() != "2 bytes too many" {
		t.Errorf("got %v", err)
	}
}

func TestTheFirstErrorStays(t *testing.T) {
	c := cursor.New(written())
	c.AtMost(5)
	c.Fail("later")
	if err := c.Err(); err == nil || err.Error() != "1099511627776 where at most 5 is allowed" || len(c.Rest()) > 0 {
		t.Errorf("got %v, %d bytes", err, len(c.Rest()))
	}
}

func TestACountIsNoLargerThanWhatFollows(t *testing.T) {
	for n, fits := range map[byte]bool{2: true, 3: false} {
		c := cursor.New(append([]byte{n}, make([]byte, 16)...))
		if got := c.Count(8); fits != (c.Err() == nil) || fits && got != int(n) || !fits && got != 0 {
			t.Errorf("%d of 8 bytes in 16: got %d, %v", n, got, c.Err())
		}
	}
}
