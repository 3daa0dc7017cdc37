package policy

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/plugins/abi"
)

// Recording is a copy of a table that outlives its decision: what records are
// kept in and what a decision is made again from, by the same revision with the
// same bits or by another one. The zero value is empty; Take reuses its memory.
type Recording struct {
	rows      []fleet.Worker
	partition fleet.PartitionKey
	seed      uint64
	sequence  uint64
	flags     uint32
	adapter   Adapter
	overrides map[string]json.RawMessage
	headers   []headerField
	prefix    []kvcache.SequenceHash
	blockSize int
	fields    [abi.NumFields]float64

	set     ColumnSet
	values  []float64 // column after column: standard ones in table order, then labels
	missing []uint64  // a bit a value, in the same order
}

// Take copies t. A row that a filter masked is in the recording as the others:
// filters run again.
func (r *Recording) Take(t *Table) {
	n := t.Len()
	r.rows = append(r.rows[:0], t.Rows...)
	r.partition, r.seed, r.sequence, r.flags = t.Partition, t.Seed, t.Sequence, t.Flags
	r.adapter = t.Adapter
	r.overrides = nil
	if len(t.Overrides) > 0 {
		r.overrides = maps.Clone(t.Overrides)
	}
	r.headers = append(r.headers[:0], t.headers...)
	r.prefix, r.blockSize = append(r.prefix[:0], t.prefix...), t.blockSize
	r.fields = t.fields
	r.set = t.set // sets of tables are not changed once they are shared
	r.values = r.values[:0]
	words := (n*t.set.len() + 63) / 64
	r.missing = slices.Grow(r.missing[:0], words)[:words]
	clear(r.missing)
	t.each(func(c *Cells) {
		at := len(r.values)
		r.values = append(r.values, c.values...)
		c.eachMissing(func(row int) { r.missing[(at+row)/64] |= 1 << ((at + row) % 64) })
	})
}

// Table fills t as it was recorded, with the columns of set. Those of set that
// were not recorded are returned by name; their cells are all missing. The column
// upstream.score is never lacking: it is what a decision makes for its picker.
func (r *Recording) Table(t *Table, set ColumnSet) (lacking []string) {
	t.Reset(len(r.rows), set)
	copy(t.Rows, r.rows)
	t.Partition, t.Seed, t.Sequence, t.Flags, t.Overrides = r.partition, r.seed, r.sequence, r.flags, r.overrides
	t.headers = append(t.headers[:0], r.headers...)
	t.prefix, t.blockSize, t.Adapter = r.prefix, r.blockSize, r.adapter
	t.fields = r.fields
	for _, name := range set.Names() {
		at, ok := r.column(name)
		if !ok {
			if name != abi.ColUpstreamScore.String() {
				lacking = append(lacking, name)
			}
			continue
		}
		cells := t.NamedCells(name)
		copy(cells.Fill(), r.values[at:at+len(r.rows)])
		for row := range r.rows {
			if r.isMissing(at + row) {
				cells.Miss(row)
			}
		}
	}
	return lacking
}

// column finds where a column's values begin.
func (r *Recording) column(name string) (at int, ok bool) {
	n := len(r.rows)
	for i := range abi.NumColumns {
		if !r.set.Has(abi.Column(i)) {
			continue
		}
		if abi.Column(i).String() == name {
			return at, true
		}
		at += n
	}
	i, found := slices.BinarySearch(r.set.labels, name)
	return at + i*n, found
}

func (r *Recording) isMissing(at int) bool { return r.missing[at/64]>>(at%64)&1 == 1 }

// Rows are the candidates. The caller must not change them.
func (r *Recording) Rows() []fleet.Worker { return r.rows }

// Columns is the set of columns that were recorded. The caller must not change
// it.
func (r *Recording) Columns() ColumnSet { return r.set }

// Value is the value of a recorded column for a row, the registry default where
// the signal was missing; ok is false for a column that was not recorded.
func (r *Recording) Value(column string, row int) (v float64, missing, ok bool) {
	at, ok := r.column(column)
	if !ok {
		return 0, false, false
	}
	return r.values[at+row], r.isMissing(at + row), true
}

// Column is a recorded column, the registry default where a signal was missing;
// ok is false for one that was not recorded. The caller must not change it.
func (r *Recording) Column(name string) (values []float64, ok bool) {
	at, ok := r.column(name)
	if !ok {
		return nil, false
	}
	return r.values[at : at+len(r.rows)], true
}

// Field is the value of a request field, 0 when missing.
func (r *Recording) Field(f abi.Field) float64 { return r.fields[f] }

// Bytes is what the recording holds in memory beside its fixed part.
func (r *Recording) Bytes() int {
	const row, number, header, override = 16, 8, 48, 64
	n := row*cap(r.rows) + number*(cap(r.values)+cap(r.missing)+cap(r.prefix)) + header*cap(r.headers)
	for name, v := range r.overrides {
		n += override + len(name) + len(v)
	}
	return n
}
