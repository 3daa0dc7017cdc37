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

	// Taken from the header, so that reading a column or field is one load and
	// no branch.
	scores  unsafe.Pointer
	mask    unsafe.Pointer
	request unsafe.Pointer
	columns [MaxColumns]unsafe.Pointer

	// What the header said when that was done, and the starts of the first columns
	// with what follows them; known if that is enough to tell a change.
	known      bool
	seen       header
	seenStarts startsBlock
}

// header is the part of a frame's header that says where things are.
type header [6]uint64

// startsBlock is the first Align bytes of the starts of the columns. The blocks
// of a frame lie on Align, so that a whole one can be read.
type startsBlock [Align / 8]uint64

// startsPerBlock is how many columns are compared. A frame with more is taken at
// each call.
const startsPerBlock = Align / 4

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

// Begin starts a call on the frame at p, which must be the one that was bound.
// Hosts write the header anew for each call and almost always the same, so
// checking and taking it is mostly one comparison.
func (v *View) Begin(p unsafe.Pointer) int32 {
	if p == nil || p != v.p {
		return v.refuse()
	}
	// The word with the rows is not compared: a call is free to change it.
	now, seen := (*header)(p), &v.seen
	differ := now[5] ^ seen[5] | now[4] ^ seen[4] | now[3] ^ seen[3] | now[2] ^ seen[2] | now[0] ^ seen[0] |
		(*startsBlock)(unsafe.Add(p, uint32(now[offColumnStarts/8]))).differ(&v.seenStarts)
	if differ != 0 || !v.known {
		if code := v.take(); code != CodeOK {
			return code
		}
	}
	rows := int(*(*uint32)(unsafe.Add(p, offRows)))
	if uint(rows-1) >= uint(v.capacity) {
		return CodeCapacity
	}
	v.rows = rows
	return CodeOK
}

// refuse is the answer to a call on another frame than the one that was bound.
func (v *View) refuse() int32 {
	if v.p == nil {
		return CodeNotBound
	}
	return CodeBadFrame
}

func (now *startsBlock) differ(seen *startsBlock) uint64 {
	return now[7] ^ seen[7] | now[6] ^ seen[6] | now[5] ^ seen[5] | now[4] ^ seen[4] |
		now[3] ^ seen[3] | now[2] ^ seen[2] | now[1] ^ seen[1] | now[0] ^ seen[0]
}

// take checks the header and takes it.
func (v *View) take() int32 {
	v.known = false
	if v.word(offMagic) != magic || v.word(offHeaderSize) < headerSize ||
		int(v.word(offColumns)) != v.declared || int(v.word(offRequestCount)) != v.fields {
		return CodeBadFrame
	}
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
	v.seen, v.seenStarts = *(*header)(v.p), *(*startsBlock)(starts)
	v.known = v.declared <= startsPerBlock
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
