package disk

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/cursor"
)

// maxText is the longest name in a directory, in bytes.
const maxText = 4 << 10

// File is a file that was opened. It is safe for concurrent use where its source is.
type File struct {
	from    io.ReaderAt
	entries []Entry
}

// Open reads the directory of a file of so many bytes. It is an error if the file is of
// another version or not whole.
func Open(from io.ReaderAt, size int64) (*File, error) {
	if size < int64(headerSize+footerSize) {
		return nil, fmt.Errorf("read index: it has %d bytes, which is none", size)
	}
	header := make([]byte, headerSize)
	if _, err := from.ReadAt(header, 0); err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	if string(header[:len(magic)]) != magic {
		return nil, fmt.Errorf("read index: it begins with %q instead of %q", header[:len(magic)], magic)
	}
	if v := binary.LittleEndian.Uint32(header[len(magic):]); v != version {
		return nil, fmt.Errorf("read index: it has version %d, this router reads version %d", v, version)
	}
	directory, begin, err := readDirectory(from, size)
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	f := &File{from: from}
	c := cursor.New(directory)
	type key struct {
		fleet.PartitionKey
		fleet.Worker
	}
	seen := map[key]bool{}
	for len(c.Rest()) > 0 {
		e := readEntry(c, begin)
		if k := (key{e.Partition, e.Worker}); c.Err() == nil && seen[k] {
			c.Fail("worker %s of partition %s is there twice", e.Worker, e.Partition)
		} else {
			seen[k] = true
		}
		f.entries = append(f.entries, e)
	}
	if err := c.End(); err != nil {
		return nil, fmt.Errorf("read directory of the index: %w", err)
	}
	return f, nil
}

// readDirectory reads and checks the footer and the directory that it tells of.
func readDirectory(from io.ReaderAt, size int64) (directory []byte, begin uint64, err error) {
	footer := make([]byte, footerSize)
	last := uint64(size) - uint64(footerSize)
	if _, err := from.ReadAt(footer, int64(last)); err != nil {
		return nil, 0, err
	}
	if string(footer[3*8:]) != endMagic {
		return nil, 0, fmt.Errorf("it is torn: the last bytes are %q instead of %q", footer[3*8:], endMagic)
	}
	begin, length := binary.LittleEndian.Uint64(footer), binary.LittleEndian.Uint64(footer[8:])
	if begin < uint64(headerSize) || begin > last || length != last-begin {
		return nil, 0, fmt.Errorf("it is torn: the directory is said to be %d bytes at %d, of %d", length, begin, size)
	}
	directory = make([]byte, length, length+16)
	if _, err := from.ReadAt(directory, int64(begin)); err != nil {
		return nil, 0, err
	}
	if xxh3.Hash(append(directory, footer[:16]...)) != binary.LittleEndian.Uint64(footer[16:]) {
		return nil, 0, fmt.Errorf("the checksum of the directory is wrong")
	}
	return directory, begin, nil
}

// readEntry reads an entry of a directory that begins there.
func readEntry(c *cursor.Cursor, begin uint64) (e Entry) {
	text := func() string { return string(c.Bytes(c.AtMost(maxText))) }
	e.Partition.Model, e.Partition.Group, e.Engine = text(), text(), text()
	e.Worker.ID, e.Worker.Rank = fleet.WorkerID(c.Number()), uint32(c.AtMost(math.MaxUint32))
	e.BlockSize, e.Blocks = c.AtMost(math.MaxInt32), c.AtMost(math.MaxInt)
	e.At = time.Unix(0, int64(c.Uint64()))
	e.offset, e.length, e.sum = c.Number(), c.Number(), c.Uint64()
	if e.offset < uint64(headerSize) || e.offset > begin || e.length > begin-e.offset {
		c.Fail("worker %s is said to be %d bytes at %d, of %d", e.Worker, e.length, e.offset, begin)
	}
	return e
}

// Entries are those of the file, in its order. The slice is the file's.
func (f *File) Entries() []Entry { return f.entries }

// Section returns the bytes of a section, whose checksum is right.
func (f *File) Section(e *Entry) ([]byte, error) {
	b := make([]byte, e.length)
	if _, err := f.from.ReadAt(b, int64(e.offset)); err != nil {
		return nil, fmt.Errorf("read index of worker %s: %w", e.Worker, err)
	}
	if xxh3.Hash(b) != e.sum {
		return nil, fmt.Errorf("read index of worker %s: the checksum is wrong", e.Worker)
	}
	return b, nil
}
