package host

import (
	"math"
	"strings"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// filler writes tables into frames: which column and which field goes where is
// looked up once, when the stage is made.
type filler struct {
	layout   *abi.Layout
	template *template
	columns  []fillColumn
	fields   []fillField
	// Where the module reads prefix_hash and the setting of its depth; -1 for not.
	prefix, depth int
}

// depthField is the setting that says how many tokens prefix_hash is of.
const depthField = abi.ConfigPrefix + "prefix_tokens"

// prefixDepth is a setting of the depth as a number of tokens.
func prefixDepth(setting float64) int {
	if setting >= 1 && setting <= policy.MaxPrefixTokens {
		return int(setting)
	}
	return policy.DefaultPrefixTokens
}

type fillColumn struct {
	std     abi.Column
	label   string // a label column where not empty
	start   int    // in float64s from the frame's start
	missing float64
	plain   bool // missing is the registry default, which tables hold already
}

type fillField struct {
	std    abi.Field
	config string  // a config.<pointer> field where not empty
	header string  // the name of a header.<name> field where not empty
	value  float64 // of a config field without override
}

func newFiller(m *module, c *configuration, l *abi.Layout) *filler {
	f := &filler{layout: l, template: newTemplate(l.Capacity), prefix: -1, depth: -1}
	for i, col := range m.manifest.Columns {
		if l.Columns[i] == 0 {
			continue
		}
		out := fillColumn{start: int(l.Columns[i] / 8), missing: col.Missing}
		if std, ok := abi.ColumnByName(col.Name); ok {
			out.std = std
			out.plain = math.Float64bits(col.Missing) == math.Float64bits(std.Info().Missing)
		} else {
			out.label = col.Name
			out.plain = math.Float64bits(col.Missing) == 0
		}
		f.columns = append(f.columns, out)
	}
	for i, name := range m.manifest.RequestFields {
		switch name {
		case abi.FieldPrefixHash.String():
			f.prefix = i
		case depthField:
			f.depth = i
		}
		var out fillField
		if pointer, ok := abi.ConfigPointer(name); ok {
			out.config = name
			out.value = number(lookup(c.value, pointer))
		} else if h, ok := strings.CutPrefix(name, abi.HeaderPrefix); ok {
			out.header = h
		} else {
			out.std, _ = abi.FieldByName(name)
		}
		f.fields = append(f.fields, out)
	}
	return f
}

// fill writes the whole frame of one call. in's views are current and t has at
// most the layout's capacity of rows; mask has a byte for each, or is nil for
// all kept.
func (f *filler) fill(in *instance, t *policy.Table, mask []byte) {
	n := t.Len()
	l := f.layout
	adapter := l.Adapter != 0 && t.Field(abi.FieldHasLora) == 1
	l.PutHeader(in.bytes)
	l.PutCall(in.bytes, n, t.Seed, abi.Flags(t.Flags), adapter)
	if l.Adapter != 0 {
		f.fillAdapter(in.f64[l.Adapter/8:], t, adapter)
	}
	if mask == nil {
		mask = f.template.ones[:n]
	}
	copy(in.bytes[l.Mask:], mask)
	copy(in.bytes[l.RowIDs:], f.template.ids[:4*n])
	copy(in.f64[l.Scores/8:], f.template.unwritten[:n])
	request := in.f64[l.Request/8:]
	for i := range f.fields {
		request[i] = f.fields[i].read(t)
	}
	if f.prefix >= 0 && f.depth >= 0 {
		request[f.prefix] = t.PrefixHash(prefixDepth(request[f.depth]))
	}
	for i := range f.columns {
		c := &f.columns[i]
		to := in.f64[c.start : c.start+l.Stride]
		c.write(to[:n], t)
		// What an earlier call left behind the last row is nobody's business:
		// it may be of another partition.
		if in.last > n {
			clear(to[n:in.last])
		}
	}
	in.last = n
}

// fillAdapter writes the adapter block. What a host does not know of an adapter,
// its rank and size, is 0.
func (f *filler) fillAdapter(block []float64, t *policy.Table, named bool) {
	clear(block[:abi.AdapterSize/8])
	if named {
		block[abi.AdapterID/8] = t.Field(abi.FieldAdapter)
		block[abi.AdapterReplicasWanted/8] = float64(t.Adapter.Wanted)
		block[abi.AdapterReplicasLoaded/8] = float64(t.Adapter.Loaded)
		block[abi.AdapterReplicasComing/8] = float64(t.Adapter.Loading)
	}
}

// write fills one column of a frame, which has a row for each of the table's.
func (c *fillColumn) write(to []float64, t *policy.Table) {
	cells := t.Cells(c.std)
	if c.label != "" {
		cells = t.LabelCells(c.label)
	}
	switch {
	case cells == nil:
		for row := range to {
			to[row] = c.missing
		}
	case c.plain:
		copy(to, cells.Values())
	default:
		cells.Copy(to, c.missing)
	}
}

func (f *fillField) read(t *policy.Table) float64 {
	if f.header != "" {
		return t.Header(f.header)
	}
	if f.config == "" {
		return t.Field(f.std)
	}
	if len(t.Overrides) > 0 {
		if v, ok := overridden(t.Overrides, f.config); ok {
			return v
		}
	}
	return f.value
}
