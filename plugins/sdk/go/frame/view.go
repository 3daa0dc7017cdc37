package frame

import "unsafe"

// MaxColumns is how many columns a manifest may declare.
const MaxColumns = 256

// Flags tell how the request stands.
type Flags uint32

// View is one frame in memory. Make it by Bind, once; Begin starts each call.
type View struct {
	p        unsafe.Pointer // start of the frame
	absent   unsafe.Pointer // capacity zeroes, for columns that the host lacks
	rows     int
	capacity int
	declared int // columns
	fields   int

	// Taken from the header by Begin, so that reading a column or field is one
	// load and no branch.
	scores  unsafe.Pointer
	mask    unsafe.Pointer
	request unsafe.Pointer
	columns [MaxColumns]unsafe.Pointer
}

// Bind looks at a frame for the first time. capacity, columns and fields are
// what the guest was told and what it declared. absent must have room for
// capacity rows of zeroes. The code is CodeOK or why the frame is refused.
func (v *View) Bind(p, absent unsafe.Pointer, capacity, columns, fields int) int32 {
	if p == nil || capacity < 1 || columns > MaxColumns {
		return CodeBadFrame
	}
	*v = View{p: p, absent: absent, capacity: capacity, declared: columns, fields: fields}
	return CodeOK
}

// Begin starts a call: the header is checked and taken.
func (v *View) Begin() int32 {
	switch {
	case v.p == nil:
		return CodeNotBound
	case v.word(offMagic) != magic, v.word(offHeaderSize) < headerSize,
		int(v.word(offColumns)) != v.declared, int(v.word(offRequestCount)) != v.fields:
		return CodeBadFrame
	}
	rows := int(v.word(offRows))
	if rows < 1 || rows > v.capacity {
		return CodeCapacity
	}
	v.rows = rows
	v.scores = unsafe.Add(v.p, v.word(offScores))
	v.mask = unsafe.Add(v.p, v.word(offMask))
	v.request = unsafe.Add(v.p, v.word(offRequest))
	starts := unsafe.Add(v.p, v.word(offColumnStarts))
	for i := range v.declared {
		p := v.absent
		if at := *(*uint32)(unsafe.Add(starts, 4*i)); at != 0 {
			p = unsafe.Add(v.p, at)
		}
		v.columns[i&(MaxColumns-1)] = p
	}
	return CodeOK
}

// Frame is where the frame starts, nil before Bind.
func (v *View) Frame() unsafe.Pointer { return v.p }

// Len is the number of candidates of this call, at least 1.
func (v *View) Len() int { return v.rows }

// Has tells whether this host has the column with that place in the list of
// declared columns. It always has those that the manifest requires.
func (v *View) Has(column int) bool { return v.columns[column] != v.absent }

// Column is the column with that place in the list of declared columns. One
// that this host does not have reads 0 in every row.
func (v *View) Column(column int) Column { return Column{v.floats(v.columns[column])} }

// Scores is where the scores go.
func (v *View) Scores() Scores { return Scores{v.floats(v.scores)} }

// Mask tells which rows are still candidates.
func (v *View) Mask() Mask { return Mask{v.bytes(v.mask)} }

// RowID is a number for the row that holds for this frame only.
func (v *View) RowID(row int) uint32 {
	if uint(row) >= uint(v.rows) {
		panic("frame: no such row")
	}
	return *(*uint32)(unsafe.Add(v.p, int(v.word(offRowIDs))+4*row))
}

// Seed is the only source of chance: chosen by the host for this decision and
// recorded.
func (v *View) Seed() uint64 { return *(*uint64)(unsafe.Add(v.p, offSeed)) }

// Flags tell how the request stands.
func (v *View) Flags() Flags { return Flags(v.word(offFlags)) }

func (v *View) word(off int) uint32 { return *(*uint32)(unsafe.Add(v.p, off)) }
