//go:build !wasm

package frame

import "unsafe"

// Column is one signal of every candidate. The zero value must not be read.
type Column struct{ floats }

// Scores takes the guest's score of every candidate.
type Scores struct{ floats }

// Mask tells which rows are still candidates.
type Mask struct{ bytes }

type (
	floats []float64
	bytes  []byte
)

func (v *View) floats(p unsafe.Pointer) floats {
	if p == nil {
		panic("frame: no such column was declared")
	}
	return unsafe.Slice((*float64)(p), v.rows)
}

func (v *View) bytes(p unsafe.Pointer) bytes { return unsafe.Slice((*byte)(p), v.rows) }

// At is the value of a row below Len.
func (c Column) At(row int) float64 { return c.floats[row] }

// Set writes the score of a row below Len.
func (s Scores) Set(row int, score float64) { s.floats[row] = score }

// At is what Set wrote for a row below Len in this call; before, unspecified.
func (s Scores) At(row int) float64 { return s.floats[row] }

// Kept tells whether a row below Len is still a candidate.
func (m Mask) Kept(row int) bool { return m.bytes[row] == 1 }

// Field is the request field with that place in the list of declared fields;
// 0 = missing.
func (v *View) Field(field int) float64 { return unsafe.Slice((*float64)(v.request), v.fields)[field] }
