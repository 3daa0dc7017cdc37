package abi

import (
	"fmt"
	"slices"
	"strings"
)

// ParseManifest reads a manifest strictly: at most 64 KiB, no unknown field
// outside ext, no field twice, strings of up to 256 printable characters, names
// from the tables. A refusal is a *ManifestError.
func ParseManifest(data []byte) (*Manifest, error) {
	if len(data) > MaxManifestBytes {
		return nil, refuse("manifest", fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("up to %d bytes", MaxManifestBytes))
	}
	doc, err := parseDocument(data)
	if err != nil {
		return nil, err
	}
	if doc.kind != '{' {
		return nil, refuse("manifest", doc.show(), "a JSON object")
	}
	for _, m := range doc.members {
		if m.key == "ext" {
			continue
		}
		if err := m.val.checkStrings(m.key); err != nil {
			return nil, err
		}
	}
	p := &parser{}
	m := p.manifest(doc)
	if p.err != nil {
		return nil, p.err
	}
	return m, nil
}

// parser keeps the first refusal; after it every reading is a zero value.
type parser struct{ err error }

func (p *parser) refuse(field, value, allowed string) {
	if p.err == nil {
		p.err = refuse(field, value, allowed)
	}
}

func (p *parser) manifest(doc *value) *Manifest {
	p.only(doc, "", "abi", "minor", "name", "version", "description", "license", "source", "kinds", "columns",
		"request_fields", "config_schema", "limits", "state", "deterministic", "imports", "score_range",
		"monotonic", "metrics", "traces", "sdk", "ext")
	m := &Manifest{
		ABI:         p.word(doc, "", "abi", true, ManifestABI),
		Minor:       int(p.whole(doc, "", "minor", 0, 0, maxMinor)),
		Name:        p.text(doc, "", "name", true),
		Version:     p.text(doc, "", "version", true),
		Description: p.text(doc, "", "description", false),
		License:     p.text(doc, "", "license", false),
		Source:      p.text(doc, "", "source", false),
	}
	if !validName(m.Name) {
		p.refuse("name", m.Name, "2 to 63 characters of a-z, 0-9, dot and hyphen, the first a letter or digit")
	}
	if !validSemver(m.Version) {
		p.refuse("version", m.Version, "a semantic version like 1.2.3 or 1.2.3-rc.1")
	}
	p.kinds(doc, m)
	p.columns(doc, m)
	p.requestFields(doc, m)
	p.schema(doc, m)
	m.SDK = p.sdk(doc)
	m.Limits = p.limits(doc, m.SDK)
	m.State = StateKind(p.word(doc, "", "state", false, string(StateNone), string(StateInstance)))
	m.Deterministic = p.truth(doc, "", "deterministic", true)
	m.Imports = p.importNames(doc)
	m.ScoreRange = p.scoreRange(doc)
	p.monotonic(doc, m)
	p.metrics(doc, m)
	m.Traces = p.names(doc, "traces", MaxTraces)
	if ext := doc.member("ext"); ext != nil {
		p.kind(ext, "ext", '{', "an object")
		m.Ext = slices.Clone(ext.raw)
	}
	return m
}

func (p *parser) kinds(doc *value, m *Manifest) {
	allowed := []string{string(KindScorer), string(KindFilter), string(KindLoraScorer), string(KindPicker), string(KindPolicy)}
	for i, v := range p.list(doc, "kinds", len(allowed)) {
		at := index("kinds", i)
		s := p.str(v, at)
		if !slices.Contains(allowed, s) {
			p.refuse(at, s, strings.Join(allowed, ", "))
		}
		if m.HasKind(Kind(s)) {
			p.refuse(at, s, "each kind once")
		}
		m.Kinds = append(m.Kinds, Kind(s))
	}
	if len(m.Kinds) == 0 {
		p.refuse("kinds", "none", "one or more of "+strings.Join(allowed, ", "))
	}
}

func (p *parser) columns(doc *value, m *Manifest) {
	seen := map[string]bool{}
	for i, v := range p.list(doc, "columns", maxColumnsInTable) {
		at := index("columns", i)
		p.kind(v, at, '{', "an object {name, required, missing}")
		p.only(v, at, "name", "required", "missing")
		c := ManifestColumn{
			Name:     p.text(v, at, "name", true),
			Required: p.truth(v, at, "required", true),
		}
		c.Missing = p.missing(v, at, p.columnDefault(c, at+".name"))
		if seen[c.Name] {
			p.refuse(at+".name", c.Name, "each column once")
		}
		seen[c.Name] = true
		m.Columns = append(m.Columns, c)
	}
}

// columnDefault checks a column's name and returns what the registry writes
// for a missing signal. A name that this version does not know is allowed where
// the module can do without: a later host may have it.
func (p *parser) columnDefault(c ManifestColumn, at string) float64 {
	if known, ok := ColumnByName(c.Name); ok {
		return known.Info().Missing
	}
	if IsLabelColumn(c.Name) {
		return 0
	}
	if c.Required || !validColumnName(c.Name) {
		p.refuse(at, c.Name, "a standard column, label.<key> or label_num.<key>; others only with \"required\": false")
	}
	return 0
}

func (p *parser) requestFields(doc *value, m *Manifest) {
	for i, v := range p.list(doc, "request_fields", maxLayoutFields) {
		at := index("request_fields", i)
		s := p.str(v, at)
		if !validField(s) {
			p.refuse(at, s, "a standard request field, header.<lower case name> or config.<pointer>")
		}
		if slices.Contains(m.RequestFields, s) {
			p.refuse(at, s, "each request field once")
		}
		m.RequestFields = append(m.RequestFields, s)
	}
}

func (p *parser) monotonic(doc *value, m *Manifest) {
	for i, v := range p.list(doc, "monotonic", maxColumnsInTable) {
		at := index("monotonic", i)
		p.kind(v, at, '{', "an object {column, direction}")
		p.only(v, at, "column", "direction")
		row := Monotonic{
			Column:    p.text(v, at, "column", true),
			Direction: Direction(p.word(v, at, "direction", true, string(Increasing), string(Decreasing))),
		}
		if !slices.ContainsFunc(m.Columns, func(c ManifestColumn) bool { return c.Name == row.Column }) {
			p.refuse(at+".column", row.Column, "a column of this manifest")
		}
		if slices.ContainsFunc(m.Monotonic, func(o Monotonic) bool { return o.Column == row.Column }) {
			p.refuse(at+".column", row.Column, "each column once")
		}
		m.Monotonic = append(m.Monotonic, row)
	}
}

func (p *parser) metrics(doc *value, m *Manifest) {
	for i, v := range p.list(doc, "metrics", MaxMetrics) {
		at := index("metrics", i)
		p.kind(v, at, '{', "an object {name, type, help}")
		p.only(v, at, "name", "type", "help")
		row := Metric{
			Name: p.text(v, at, "name", true),
			Type: MetricType(p.word(v, at, "type", true, string(MetricCounter), string(MetricGauge))),
			Help: p.text(v, at, "help", false),
		}
		if !validIdent(row.Name) {
			p.refuse(at+".name", row.Name, identAllowed)
		}
		if slices.ContainsFunc(m.Metrics, func(o Metric) bool { return o.Name == row.Name }) {
			p.refuse(at+".name", row.Name, "each metric once")
		}
		m.Metrics = append(m.Metrics, row)
	}
}

func (p *parser) importNames(doc *value) []string {
	var out, known []string
	for _, i := range Imports() {
		if i.Module == ModuleRouterd {
			known = append(known, i.Name)
		}
	}
	for i, v := range p.list(doc, "imports", len(known)) {
		at := index("imports", i)
		s := p.str(v, at)
		if !slices.Contains(known, s) {
			p.refuse(at, s, "names of module "+ModuleRouterd+": "+strings.Join(known, ", "))
		}
		if slices.Contains(out, s) {
			p.refuse(at, s, "each import once")
		}
		out = append(out, s)
	}
	return out
}

// names reads a list of identifiers.
func (p *parser) names(doc *value, key string, most int) []string {
	var out []string
	for i, v := range p.list(doc, key, most) {
		at := index(key, i)
		s := p.str(v, at)
		if !validIdent(s) {
			p.refuse(at, s, identAllowed)
		}
		if slices.Contains(out, s) {
			p.refuse(at, s, "each name once")
		}
		out = append(out, s)
	}
	return out
}
