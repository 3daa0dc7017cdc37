package scorertest

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/routerd/routerd/plugins/abi"
	"github.com/routerd/routerd/plugins/sdk/go/frame"
	"github.com/routerd/routerd/plugins/sdk/go/scorer"
)

// Batch is what the host would say about one request. Columns must be of equal
// length, at least 1; a declared column that is not in the map is absent on
// this host. Fields that are not in the map are 0, which means missing. An empty
// Mask keeps every row.
type Batch struct {
	Columns map[string][]float64
	Fields  map[string]float64
	Mask    []bool
	Seed    uint64
	Flags   scorer.Flags
}

// Frame is a batch in memory, for tests that score it more than once.
type Frame struct {
	plugin scorer.Plugin
	view   frame.View
	batch  *scorer.Batch
	memory []uint64 // keeps the memory alive and 8-aligned
	bytes  []byte
	layout *abi.Layout
	rows   int
}

// Run scores one batch and returns a score per row.
func Run(p scorer.Plugin, b Batch) ([]float64, error) {
	f, err := NewFrame(p, b)
	if err != nil {
		return nil, err
	}
	return f.Score()
}

// NewFrame lays b out for p. It refuses what the host would never send: columns
// of other length, or columns and fields that p does not declare.
func NewFrame(p scorer.Plugin, b Batch) (*Frame, error) {
	rows, err := checkBatch(p, b)
	if err != nil {
		return nil, err
	}
	present := make([]bool, len(p.Columns))
	for i, name := range p.Columns {
		_, present[i] = b.Columns[name]
	}
	l, err := abi.NewLayout(abi.LayoutSpec{Columns: present, Fields: len(p.Fields), Capacity: rows})
	if err != nil {
		return nil, fmt.Errorf("lay out frame: %w", err)
	}
	f := &Frame{plugin: p, layout: l, rows: rows}
	f.memory = make([]uint64, (int(l.Size)+abi.FrameAlign)/8)
	base := unsafe.Pointer(unsafe.SliceData(f.memory))
	base = unsafe.Add(base, -uintptr(base)&(abi.FrameAlign-1))
	f.bytes = unsafe.Slice((*byte)(base), l.Size)
	l.PutHeader(f.bytes)
	f.fill(b)
	absent := make([]float64, rows)
	f.view.Bind(base, unsafe.Pointer(unsafe.SliceData(absent)), rows, len(p.Columns), len(p.Fields))
	f.batch = scorer.NewBatch(&f.view)
	return f, nil
}

func checkBatch(p scorer.Plugin, b Batch) (rows int, err error) {
	declared := map[string]bool{}
	for _, name := range p.Columns {
		declared[name] = true
	}
	for name, col := range b.Columns {
		if !declared[name] {
			return 0, fmt.Errorf("column %q is not declared by the plugin", name)
		}
		if rows != 0 && len(col) != rows {
			return 0, fmt.Errorf("column %q has %d rows, others %d", name, len(col), rows)
		}
		rows = len(col)
	}
	if len(b.Mask) != 0 && len(b.Mask) != rows {
		return 0, fmt.Errorf("the mask has %d rows, columns %d", len(b.Mask), rows)
	}
	clear(declared)
	for _, name := range p.Fields {
		declared[name] = true
	}
	for name := range b.Fields {
		if !declared[name] {
			return 0, fmt.Errorf("request field %q is not declared by the plugin", name)
		}
	}
	return rows, nil
}

func (f *Frame) fill(b Batch) {
	l := f.layout
	l.PutCall(f.bytes, f.rows, b.Seed, abi.Flags(b.Flags), false)
	for i, name := range f.plugin.Columns {
		for row, v := range b.Columns[name] {
			f.put(l.Columns[i], row, v)
		}
	}
	for i, name := range f.plugin.Fields {
		f.put(l.Request, i, b.Fields[name])
	}
	for row := range f.rows {
		binary.LittleEndian.PutUint32(f.bytes[int(l.RowIDs)+4*row:], uint32(row))
		if len(b.Mask) == 0 || b.Mask[row] {
			f.bytes[int(l.Mask)+row] = 1
		}
	}
}

func (f *Frame) put(block uint32, i int, v float64) {
	binary.LittleEndian.PutUint64(f.bytes[int(block)+8*i:], math.Float64bits(v))
}

// Score runs the plugin on the frame. A row that the plugin left unwritten is an
// error, as it is for the host, unless the mask excludes the row: such scores
// are 0. The slice is the caller's.
func (f *Frame) Score() ([]float64, error) {
	scores := make([]float64, f.rows)
	for row := range f.rows {
		f.put(f.layout.Scores, row, math.Float64frombits(abi.UnwrittenBits))
	}
	if err := f.run(); err != nil {
		return nil, err
	}
	for row := range scores {
		if f.bytes[int(f.layout.Mask)+row] == 0 {
			continue
		}
		at := int(f.layout.Scores) + 8*row
		bits := binary.LittleEndian.Uint64(f.bytes[at:])
		if bits == abi.UnwrittenBits {
			return nil, fmt.Errorf("row %d of %d: no score was written", row, f.rows)
		}
		scores[row] = math.Float64frombits(bits)
	}
	return scores, nil
}

func (f *Frame) run() error {
	if code := f.view.Begin(f.view.Frame()); code != frame.CodeOK {
		return fmt.Errorf("begin call: %s", abi.GuestCode(code))
	}
	return f.plugin.Score(f.batch)
}
