package frame

import "unsafe"

// Column is one signal of every candidate. The zero value must not be read.
type Column struct{ floats }

// Scores takes the guest's score of every candidate.
type Scores struct{ floats }

// Mask tells which rows are still candidates.
type Mask struct{ bytes }

// floats and bytes are bare pointers: a slice would cost a bounds check for
// each access, which triples the time of a scoring loop.
type (
	floats struct{ p unsafe.Pointer }
	bytes  struct{ p unsafe.Pointer }
)

func (v *View) floats(p unsafe.Pointer) floats { return floats{p} }
func (v *View) bytes(p unsafe.Pointer) bytes   { return bytes{p} }

// At is the value of a row below Len.
func (c Column) At(row int) float64 { return *(*float64)(unsafe.Add(c.p, row<<3)) }

// Set writes the score of a row below Len.
func (s Scores) Set(row int, score float64) { *(*float64)(unsafe.Add(s.p, row<<3)) = score }

// At is what Set wrote for a row below Len in this call; before, unspecified.
func (s Scores) At(row int) float64 { return *(*float64)(unsafe.Add(s.p, row<<3)) }

// Kept tells whether a row below Len is still a candidate.
func (m Mask) Kept(row int) bool { return *(*byte)(unsafe.Add(m.p, row)) == 1 }

// Field is the request field with that place in the list of declared fields;
// 0 = missing.
func (v *View) Field(field int) float64 { return *(*float64)(unsafe.Add(v.request, field<<3)) }
