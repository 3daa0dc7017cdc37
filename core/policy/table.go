package policy

import (
	"encoding/json"
	"math/bits"
	"slices"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/plugins/abi"
)

// ColumnSet is a set of columns: standard ones as bits, label columns by name.
type ColumnSet struct {
	std    uint64
	labels []string // sorted, no duplicates
}

// Add puts the column called name into the set; false when no such column
// exists.
func (s *ColumnSet) Add(name string) bool {
	if c, ok := abi.ColumnByName(name); ok {
		s.std |= 1 << c
		return true
	}
	if !abi.IsLabelColumn(name) {
		return false
	}
	if i, found := slices.BinarySearch(s.labels, name); !found {
		s.labels = slices.Insert(s.labels, i, name)
	}
	return true
}

// AddStd puts standard columns into the set.
func (s *ColumnSet) AddStd(cols ...abi.Column) {
	for _, c := range cols {
		s.std |= 1 << c
	}
}

// Union adds all of o.
func (s *ColumnSet) Union(o ColumnSet) {
	s.std |= o.std
	for _, l := range o.labels {
		s.Add(l)
	}
}

// Clone is a copy that shares nothing.
func (s ColumnSet) Clone() ColumnSet {
	s.labels = slices.Clone(s.labels)
	return s
}

// Has tells whether the standard column is in the set.
func (s *ColumnSet) Has(c abi.Column) bool { return s.std&(1<<c) != 0 }

func (s *ColumnSet) len() int { return bits.OnesCount64(s.std) + len(s.labels) }

// Labels are the label columns in order. The caller must not change them.
func (s *ColumnSet) Labels() []string { return s.labels }

// Names lists all columns of the set: standard ones in table order, then label
// columns in alphabetical order.
func (s *ColumnSet) Names() []string {
	var names []string
	for i := range abi.NumColumns {
		if c := abi.Column(i); s.Has(c) {
			names = append(names, c.String())
		}
	}
	return append(names, s.labels...)
}

// Table is what one decision is made from: the eligible candidates as columns
// of equal length, and the request's fields. Rows ascend by (worker, rank). A
// column knows which of its cells have no signal (Cells); there it holds the
// registry default. The table is owned by one decision at a time and reused; no
// stage may keep it or a slice taken from it.
type Table struct {
	// Rows names the candidates.
	Rows []fleet.Worker
	// Seed is the request's, the same over all its attempts.
	Seed uint64
	// Sequence counts the partition's requests before this one, advisory ones
	// left out; the same over all attempts of a request.
	Sequence uint64
	// Flags are the frame's in-flags (abi.Flag…).
	Flags uint32
	// Overrides are the request's configuration overrides by name; nil for none.
	Overrides map[string]json.RawMessage
	// Partition is where the decision is made.
	Partition fleet.PartitionKey
	// Adapter is what is known of the request's adapter over all workers of the
	// partition.
	Adapter Adapter
	// At is when the table was made, as the guard counts calls by the second; the
	// zero time has it look itself.
	At time.Time
	// Quiet says that nothing is to be seen of the calls outside: a shadow, a
	// replay, a probe. Stages drop their effects.
	Quiet bool

	mask      []byte // nil: every row is kept
	headers   []headerField
	prefix    []kvcache.SequenceHash // of the prompt's first blocks
	blockSize int
	set       ColumnSet
	columns   [abi.NumColumns]Cells
	labels    []Cells // parallel to set.labels
	fields    [abi.NumFields]float64
}

// Adapter counts the workers that should have an adapter loaded, that have and
// that are loading it.
type Adapter struct{ Wanted, Loaded, Loading int }

// Reset prepares the table for n rows with the given columns, all cells missing,
// and zeroes the fields.
func (t *Table) Reset(n int, set ColumnSet) {
	t.Rows = slices.Grow(t.Rows[:0], n)[:n]
	clear(t.Rows)
	t.Seed, t.Sequence, t.Flags, t.Overrides = 0, 0, 0, nil
	t.Partition, t.Adapter, t.At, t.Quiet = fleet.PartitionKey{}, Adapter{}, time.Time{}, false
	t.mask, t.headers, t.prefix = nil, t.headers[:0], nil
	t.set = set
	t.fields = [abi.NumFields]float64{}
	for i := range t.columns {
		if !set.Has(abi.Column(i)) {
			continue
		}
		t.columns[i].reset(n, abi.Column(i).Info().Missing)
	}
	for len(t.labels) < len(set.labels) {
		t.labels = append(t.labels, Cells{})
	}
	for i := range set.labels {
		t.labels[i].reset(n, 0)
	}
}

// Len is the number of candidates.
func (t *Table) Len() int { return len(t.Rows) }

// Mask has a byte a row, 1 for those that the filters so far have kept; nil when
// every row is kept. The caller must not change it.
func (t *Table) Mask() []byte { return t.mask }

// Kept tells whether the filters so far have kept the row.
func (t *Table) Kept(row int) bool { return len(t.mask) == 0 || t.mask[row] == 1 }

// countKept is the number of rows that the filters so far have kept.
func (t *Table) countKept() int {
	if t.mask == nil {
		return len(t.Rows)
	}
	n := 0
	for _, keep := range t.mask {
		n += int(keep)
	}
	return n
}

// nthKept is the nth of the kept rows, from 0.
func (t *Table) nthKept(nth int) int {
	if t.mask == nil {
		return nth
	}
	for row, keep := range t.mask {
		if keep != 1 {
			continue
		}
		if nth == 0 {
			return row
		}
		nth--
	}
	return 0
}

// headerField is a request header that policies may see, as an id.
type headerField struct {
	name string // lower case
	id   float64
}

// SetHeader sets the id of a request header's value; name is in lower case.
func (t *Table) SetHeader(name string, id float64) {
	t.headers = append(t.headers, headerField{name, id})
}

// Header is the id of a request header's value, 0 when it is not there or not
// allowed. name is in lower case.
func (t *Table) Header(name string) float64 {
	for i := range t.headers {
		if t.headers[i].name == name {
			return t.headers[i].id
		}
	}
	return 0
}

// each walks the cells of all columns: standard ones in table order, then
// labels.
func (t *Table) each(f func(*Cells)) {
	for i := range t.columns {
		if t.set.Has(abi.Column(i)) {
			f(&t.columns[i])
		}
	}
	for i := range t.set.labels {
		f(&t.labels[i])
	}
}

// Set is the set of columns that the table holds.
func (t *Table) Set() ColumnSet { return t.set }

// Cells returns the cells of a standard column; nil when the table does not hold
// it.
func (t *Table) Cells(c abi.Column) *Cells {
	if !t.set.Has(c) {
		return nil
	}
	return &t.columns[c]
}

// LabelCells returns the cells of the label column called name; nil when the
// table does not hold it.
func (t *Table) LabelCells(name string) *Cells {
	i, found := slices.BinarySearch(t.set.labels, name)
	if !found {
		return nil
	}
	return &t.labels[i]
}

// NamedCells returns the cells of the column called name, standard or label; nil
// when the table does not hold it.
func (t *Table) NamedCells(name string) *Cells {
	if c, ok := abi.ColumnByName(name); ok {
		return t.Cells(c)
	}
	return t.LabelCells(name)
}

// Fill is Cells.Fill of a standard column; nil when the table does not hold it.
func (t *Table) Fill(c abi.Column) []float64 { return t.Cells(c).Fill() }

// Column is Cells.Values of a standard column; nil when the table does not hold
// it.
func (t *Table) Column(c abi.Column) []float64 {
	if !t.set.Has(c) {
		return nil
	}
	return t.columns[c].values
}

// Label is Cells.Values of the label column called name; nil when the table does
// not hold it.
func (t *Table) Label(name string) []float64 { return valuesOf(t.LabelCells(name)) }

// Named is Cells.Values of the column called name, standard or label; nil when
// the table does not hold it.
func (t *Table) Named(name string) []float64 { return valuesOf(t.NamedCells(name)) }

func valuesOf(c *Cells) []float64 {
	if c == nil {
		return nil
	}
	return c.values
}

// Field is the value of a request field, 0 when missing.
func (t *Table) Field(f abi.Field) float64 { return t.fields[f] }

// SetField sets a request field.
func (t *Table) SetField(f abi.Field, v float64) { t.fields[f] = v }
