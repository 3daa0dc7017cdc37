package disk

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/kvcache"
)

const (
	magic    = "routerdx"
	endMagic = "xdretuor"
	version  = 1

	headerSize = len(magic) + 4
	footerSize = 3*8 + len(endMagic)
)

// The head of a change.
const (
	kindEnd     = 0
	kindStored  = 1
	kindRemoved = 2
	kinds       = 3

	headParent  = 4
	headSalt    = 8
	headNumbers = 16

	tierShift = 5

	_ = uint(4 - kvcache.Tiers) // they have two bits
)

// The flags of what is known of a rank beside its blocks.
const (
	restMain    = 1
	restFull    = 2
	restEvicted = 4
)

// Entry says of a section whose it is.
type Entry struct {
	Partition fleet.PartitionKey
	Worker    fleet.Worker // the rank that the stream is registered for
	Engine    string       // the engine's kind
	BlockSize int
	At        time.Time // when it was taken
	// Blocks is how many blocks there are on all tiers and ranks. Add counts them.
	Blocks int

	offset, length, sum uint64
}

// Bytes is how long the section is.
func (e *Entry) Bytes() int64 { return int64(e.length) }

// Writer writes a file. One goroutine owns it. Its first error stays.
type Writer struct {
	to        *bufio.Writer
	err       error
	at        uint64 // bytes written
	sum       *xxh3.Hasher
	directory []byte
	buf       []byte

	// Streams and Blocks are how many were written so far.
	Streams, Blocks int
}

// NewWriter begins a file.
func NewWriter(to io.Writer) *Writer {
	w := &Writer{to: bufio.NewWriterSize(to, 64<<10), sum: xxh3.New()}
	w.put(binary.LittleEndian.AppendUint32([]byte(magic), version))
	return w
}

// Bytes is how many bytes were written so far.
func (w *Writer) Bytes() int64 { return int64(w.at) }

// Add writes what a stream stored, with its position. All of it must be of one moment.
func (w *Writer) Add(e Entry, position []byte, ranks []indexer.Snapshot) error {
	begin := w.begin()
	w.put(binary.AppendUvarint(w.buf[:0], uint64(len(position))))
	w.put(position)
	w.put(binary.AppendUvarint(w.buf[:0], uint64(len(ranks))))
	e.Blocks = 0
	for i := range ranks {
		e.Blocks += w.rank(&ranks[i])
	}
	return w.end(&e, begin)
}

// AddSection writes a section that another file has, as it is.
func (w *Writer) AddSection(e *Entry, section []byte) error {
	begin := w.begin()
	w.put(section)
	copied := *e
	return w.end(&copied, begin)
}

// Close ends the file.
func (w *Writer) Close() error {
	footer := binary.LittleEndian.AppendUint64(nil, w.at)
	footer = binary.LittleEndian.AppendUint64(footer, uint64(len(w.directory)))
	w.begin()
	w.put(w.directory)
	_, _ = w.sum.Write(footer) // it cannot fail
	footer = binary.LittleEndian.AppendUint64(footer, w.sum.Sum64())
	w.put(append(footer, endMagic...))
	if w.err == nil {
		w.err = w.to.Flush()
	}
	if w.err != nil {
		return fmt.Errorf("write index: %w", w.err)
	}
	return nil
}

// begin begins what has a checksum.
func (w *Writer) begin() (at uint64) {
	w.sum.Reset()
	return w.at
}

// end enters a section in the directory.
func (w *Writer) end(e *Entry, begin uint64) error {
	if w.err != nil {
		return fmt.Errorf("write index of worker %s: %w", e.Worker, w.err)
	}
	w.Streams, w.Blocks = w.Streams+1, w.Blocks+e.Blocks
	e.offset, e.length, e.sum = begin, w.at-begin, w.sum.Sum64()
	w.directory = e.append(w.directory)
	return nil
}

func (e *Entry) append(b []byte) []byte {
	for _, text := range []string{e.Partition.Model, e.Partition.Group, e.Engine} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	for _, n := range []uint64{uint64(e.Worker.ID), uint64(e.Worker.Rank), uint64(e.BlockSize), uint64(e.Blocks)} {
		b = binary.AppendUvarint(b, n)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(e.At.UnixNano()))
	b = binary.AppendUvarint(binary.AppendUvarint(b, e.offset), e.length)
	return binary.LittleEndian.AppendUint64(b, e.sum)
}

func (w *Writer) put(b []byte) {
	if w.err != nil {
		return
	}
	_, w.err = w.to.Write(b)
	_, _ = w.sum.Write(b) // it cannot fail
	w.at += uint64(len(b))
}

// rank writes a rank and returns how many blocks it has.
func (w *Writer) rank(s *indexer.Snapshot) (blocks int) {
	w.buf = appendRest(binary.AppendUvarint(w.buf[:0], uint64(s.Worker.Rank)), &s.Rest)
	w.put(w.buf)
	for c := range s.Changes {
		if len(c.Blocks)+len(c.Removed) == 0 {
			continue
		}
		blocks += len(c.Blocks) - len(c.Removed)
		w.buf = appendChange(w.buf[:0], &c)
		if w.put(w.buf); w.err != nil {
			break
		}
	}
	w.put([]byte{kindEnd})
	return blocks
}

func appendRest(b []byte, r *indexer.Rest) []byte {
	flags := byte(0)
	if r.MainKnown {
		flags |= restMain
	}
	if r.Full {
		flags |= restFull
	}
	if r.Evicted {
		flags |= restEvicted
	}
	b = append(b, flags)
	if r.MainKnown {
		b = binary.AppendVarint(b, int64(r.Main))
	}
	b = binary.AppendUvarint(b, uint64(len(r.Others)))
	for _, g := range r.Others {
		b = binary.AppendVarint(b, int64(g))
	}
	for _, hashes := range r.Opaque {
		b = binary.AppendUvarint(b, uint64(len(hashes)))
		for _, h := range hashes {
			b = appendHash(b, h)
		}
	}
	return b
}

func appendHash(b []byte, h kvcache.EngineHash) []byte {
	if n, ok := h.Number(); ok {
		return binary.LittleEndian.AppendUint64(append(b, 0), n)
	}
	return append(binary.AppendUvarint(b, uint64(len(h.Bytes()))), h.Bytes()...)
}

func appendChange(b []byte, c *indexer.Change) []byte {
	head, numbers := byte(c.Tier)<<tierShift, onlyNumbers(c)
	if numbers {
		head |= headNumbers
	}
	if len(c.Removed) > 0 {
		b = binary.AppendUvarint(append(b, head|kindRemoved), uint64(len(c.Removed)))
		for _, h := range c.Removed {
			b = appendListed(b, h, numbers)
		}
		return b
	}
	at := len(b)
	b = append(b, head|kindStored)
	switch {
	case c.HasParent:
		b[at] |= headParent
		b = appendHash(b, c.Parent)
	case c.Salt != 0:
		b[at] |= headSalt
		b = binary.LittleEndian.AppendUint64(b, c.Salt)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Blocks)))
	for i := range c.Blocks {
		b = appendListed(b, c.Blocks[i].Hash, numbers)
		b = binary.LittleEndian.AppendUint64(b, uint64(c.Blocks[i].Local))
	}
	return b
}

// onlyNumbers tells whether all hashes of a change's list are numbers.
func onlyNumbers(c *indexer.Change) bool {
	for _, h := range c.Removed {
		if _, ok := h.Number(); !ok {
			return false
		}
	}
	for i := range c.Blocks {
		if _, ok := c.Blocks[i].Hash.Number(); !ok {
			return false
		}
	}
	return true
}

func appendListed(b []byte, h kvcache.EngineHash, numbers bool) []byte {
	if !numbers {
		return appendHash(b, h)
	}
	n, _ := h.Number()
	return binary.LittleEndian.AppendUint64(b, n)
}
