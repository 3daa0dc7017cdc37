package scorer

import "github.com/routerd/routerd/plugins/sdk/go/frame"

// Batch is all candidates of one request. It is valid during the call.
//
// Batch, Column, Scores and Mask wrap what package frame has instead of naming
// it: the compiler inlines a method in a plugin only if it is declared in a
// package that the plugin imports, and a call costs a guest more than all the
// arithmetic of a row.
type Batch struct{ v *frame.View }

// NewBatch is a batch over a frame that is bound. The SDK and scorertest call
// it; a plugin is handed its batch.
func NewBatch(v *frame.View) *Batch { return &Batch{v} }

// Flags tell how the request stands.
type Flags = frame.Flags

// The flags.
const (
	Advisory      = frame.Advisory
	DequeuedAgain = frame.DequeuedAgain
	Pinned        = frame.Pinned
	SessionBound  = frame.SessionBound
)

// Len is the number of candidates, at least 1. Read it once: the compiler
// cannot know that writing a score does not change it.
func (b *Batch) Len() int { return b.v.Len() }

// Has tells whether this host has the column with that place in
// Plugin.Columns. It always has those that the manifest requires.
func (b *Batch) Has(column int) bool { return b.v.Has(column) }

// Column is the column with that place in Plugin.Columns. One that this host
// does not have reads 0 in every row.
func (b *Batch) Column(column int) Column { return Column{b.v.Column(column)} }

// Field is the request field with that place in Plugin.Fields; 0 = missing.
func (b *Batch) Field(field int) float64 { return b.v.Field(field) }

// Scores is where the scores go.
func (b *Batch) Scores() Scores { return Scores{b.v.Scores()} }

// Mask tells which rows are still candidates. Scores of others are never read.
func (b *Batch) Mask() Mask { return Mask{b.v.Mask()} }

// RowID is a number for the row that holds for this call only.
func (b *Batch) RowID(row int) uint32 { return b.v.RowID(row) }

// Seed is the only source of chance: chosen by the host for this decision and
// recorded.
func (b *Batch) Seed() uint64 { return b.v.Seed() }

// Flags tell how the request stands. Ignore bits that have no name.
func (b *Batch) Flags() Flags { return b.v.Flags() }

// Column is one signal of every candidate.
type Column struct{ c frame.Column }

// At is the value of a row below Len.
func (c Column) At(row int) float64 { return c.c.At(row) }

// Scores takes the score of every candidate.
type Scores struct{ s frame.Scores }

// Set writes the score of a row below Len.
func (s Scores) Set(row int, score float64) { s.s.Set(row, score) }

// At is what Set wrote for a row below Len in this call; before, unspecified.
func (s Scores) At(row int) float64 { return s.s.At(row) }

// Mask tells which rows are still candidates.
type Mask struct{ m frame.Mask }

// Kept tells whether a row below Len is still a candidate.
func (m Mask) Kept(row int) bool { return m.m.Kept(row) }
