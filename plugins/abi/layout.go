package abi

import (
	"encoding/binary"
	"fmt"
)

// LayoutSpec says what a frame must hold.
type LayoutSpec struct {
	Columns  []bool // one per column of the manifest; false = absent on this host
	Fields   int    // request fields of the manifest
	Capacity int    // rows, 1 … MaxRows
	Adapter  bool   // room for the adapter block
}

// Layout is where everything in a frame lies: offsets from its start, in bytes.
// Every block starts on FrameAlign; two blocks never overlap.
type Layout struct {
	Capacity     int
	Stride       int      // rows
	ColumnStarts uint32   // of the u32 array
	Columns      []uint32 // start of each column, 0 = absent
	Scores       uint32
	Mask         uint32
	Request      uint32
	Fields       int
	RowIDs       uint32
	Adapter      uint32 // 0 = no room was asked for
	Size         uint32 // of the whole frame, a multiple of FrameAlign
}

// maxLayoutColumns and maxLayoutFields are what a manifest may declare.
const (
	maxLayoutColumns = 256
	maxLayoutFields  = 256
)

// Stride is the distance of two columns in rows for a frame of n rows: n
// rounded up to 8, and 8 more where that is a multiple of 64, since a distance
// of a power of two makes the columns fight for the same cache sets.
func Stride(n int) int {
	s := (n + 7) &^ 7
	if s%64 == 0 {
		s += 8
	}
	return s
}

// NewLayout lays a frame out.
func NewLayout(s LayoutSpec) (*Layout, error) {
	switch {
	case s.Capacity < 1 || s.Capacity > MaxRows:
		return nil, fmt.Errorf("frame capacity %d rows is not allowed; allowed: 1 to %d", s.Capacity, MaxRows)
	case len(s.Columns) > maxLayoutColumns:
		return nil, fmt.Errorf("frame with %d columns is not allowed; allowed: up to %d", len(s.Columns), maxLayoutColumns)
	case s.Fields < 0 || s.Fields > maxLayoutFields:
		return nil, fmt.Errorf("frame with %d request fields is not allowed; allowed: 0 to %d", s.Fields, maxLayoutFields)
	}
	l := &Layout{
		Capacity: s.Capacity,
		Stride:   Stride(s.Capacity),
		Columns:  make([]uint32, len(s.Columns)),
		Fields:   s.Fields,
		Size:     HeaderSize,
	}
	l.ColumnStarts = l.block(4 * len(s.Columns))
	l.Request = l.block(8 * s.Fields)
	if s.Adapter {
		l.Adapter = l.block(AdapterSize)
	}
	l.RowIDs = l.block(4 * l.Stride)
	l.Mask = l.block(l.Stride)
	l.Scores = l.block(8 * l.Stride)
	for i, present := range s.Columns {
		if present {
			l.Columns[i] = l.block(8 * l.Stride)
		}
	}
	return l, nil
}

// block takes size bytes at the frame's end. An empty block has a place too, so
// that its offset is never 0.
func (l *Layout) block(size int) uint32 {
	at := l.Size
	l.Size += uint32(max(size, 1)+FrameAlign-1) &^ (FrameAlign - 1)
	return at
}

// PutHeader writes all of the header that does not change from call to call,
// the column starts, and zeroes the rest of the header. frame must have at
// least l.Size bytes.
func (l *Layout) PutHeader(frame []byte) {
	clear(frame[:HeaderSize])
	put := func(off int, v uint32) { binary.LittleEndian.PutUint32(frame[off:], v) }
	put(OffMagic, FrameMagic)
	put(OffHeaderSize, HeaderSize)
	put(OffCapacity, uint32(l.Capacity))
	put(OffStride, uint32(l.Stride))
	put(OffColumns, uint32(len(l.Columns)))
	put(OffColumnStarts, l.ColumnStarts)
	put(OffScores, l.Scores)
	put(OffMask, l.Mask)
	put(OffRequest, l.Request)
	put(OffRequestCount, uint32(l.Fields))
	put(OffRowIDs, l.RowIDs)
	put(OffPick, PickNone)
	for i, at := range l.Columns {
		put(int(l.ColumnStarts)+4*i, at)
	}
}

// PutCall writes what the header says about one call: rows (at most
// l.Capacity), seed, flags, whether the request has an adapter (only where
// there is room for its block), and the presets of pick and out-flags. Scores,
// mask, columns, row ids and request fields are the caller's to fill.
func (l *Layout) PutCall(frame []byte, rows int, seed uint64, flags Flags, adapter bool) {
	put := func(off int, v uint32) { binary.LittleEndian.PutUint32(frame[off:], v) }
	put(OffRows, uint32(rows))
	binary.LittleEndian.PutUint64(frame[OffSeed:], seed)
	put(OffPick, PickNone)
	put(OffFlags, uint32(flags))
	put(OffOutFlags, 0)
	at := uint32(0)
	if adapter {
		at = l.Adapter
	}
	put(OffAdapter, at)
}
