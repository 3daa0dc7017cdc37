package abi

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// only refuses every member of v that is not in known.
func (p *parser) only(v *value, path string, known ...string) {
	for _, m := range v.members {
		if !slices.Contains(known, m.key) {
			p.refuse(join(path, m.key), m.val.show(), "no such field; known: "+strings.Join(known, ", "))
		}
	}
}

func (p *parser) kind(v *value, path string, kind byte, allowed string) bool {
	if v.kind != kind {
		p.refuse(path, v.show(), allowed)
		return false
	}
	return true
}

func (p *parser) str(v *value, path string) string {
	if !p.kind(v, path, '"', "a string") {
		return ""
	}
	return v.text
}

func (p *parser) text(v *value, path, key string, required bool) string {
	m := v.member(key)
	if m == nil {
		if required {
			p.refuse(join(path, key), "", "a string; the field is required")
		}
		return ""
	}
	return p.str(m, join(path, key))
}

// word reads one of a closed list; the first is the default.
func (p *parser) word(v *value, path, key string, required bool, allowed ...string) string {
	if v.member(key) == nil && !required {
		return allowed[0]
	}
	s := p.text(v, path, key, required)
	if !slices.Contains(allowed, s) {
		p.refuse(join(path, key), s, strings.Join(allowed, ", "))
	}
	return s
}

func (p *parser) truth(v *value, path, key string, unless bool) bool {
	m := v.member(key)
	if m == nil || !p.kind(m, join(path, key), 'b', "true or false") {
		return unless
	}
	return m.truth
}

// whole reads an integer from least to most.
func (p *parser) whole(v *value, path, key string, unless, least, most uint64) uint64 {
	m := v.member(key)
	if m == nil {
		return unless
	}
	n, err := strconv.ParseUint(m.text, 10, 64)
	if m.kind != '0' || err != nil || n < least || n > most {
		p.refuse(join(path, key), m.show(), fmt.Sprintf("a whole number from %d to %d", least, most))
		return unless
	}
	return n
}

func (p *parser) number(v *value, path string) float64 {
	f, err := strconv.ParseFloat(v.text, 64)
	if v.kind != '0' || err != nil || math.IsInf(f, 0) {
		p.refuse(path, v.show(), "a finite number")
		return 0
	}
	return f
}

// list reads an optional list of up to most values.
func (p *parser) list(v *value, key string, most int) []*value {
	m := v.member(key)
	if m == nil || !p.kind(m, key, '[', "a list") {
		return nil
	}
	if len(m.items) > most {
		p.refuse(key, fmt.Sprintf("%d values", len(m.items)), fmt.Sprintf("up to %d", most))
		return nil
	}
	return m.items
}

func (p *parser) missing(v *value, path string, unless float64) float64 {
	m := v.member("missing")
	if m == nil {
		return unless
	}
	if m.kind == '"' && m.text == "nan" {
		return math.Float64frombits(CanonicalNaNBits)
	}
	if m.kind != '0' {
		p.refuse(path+".missing", m.show(), `a finite number or "nan"`)
		return unless
	}
	return p.number(m, path+".missing")
}

func (p *parser) limits(doc *value, sdk SDK) Limits {
	pages := uint64(DefaultPages)
	if sdk.Name == SDKGo {
		pages = DefaultPagesGo
	}
	v := doc.member("limits")
	if v == nil {
		v = &value{kind: '{'}
	}
	p.kind(v, "limits", '{', "an object {memory_pages, fuel_base, fuel_per_row, max_rows}")
	p.only(v, "limits", "memory_pages", "fuel_base", "fuel_per_row", "max_rows")
	return Limits{
		MemoryPages: uint32(p.whole(v, "limits", "memory_pages", pages, 1, MaxPages)),
		FuelBase:    p.whole(v, "limits", "fuel_base", DefaultFuelBase, 0, MaxFuelBase),
		FuelPerRow:  p.whole(v, "limits", "fuel_per_row", DefaultFuelPerRow, 0, MaxFuelPerRow),
		MaxRows:     int(p.whole(v, "limits", "max_rows", DefaultMaxRows, 1, MaxRows)),
	}
}

func (p *parser) sdk(doc *value) SDK {
	v := doc.member("sdk")
	if v == nil || !p.kind(v, "sdk", '{', "an object {name, version}") {
		return SDK{}
	}
	p.only(v, "sdk", "name", "version")
	return SDK{Name: p.text(v, "sdk", "name", true), Version: p.text(v, "sdk", "version", false)}
}

func (p *parser) scoreRange(doc *value) *Range {
	v := doc.member("score_range")
	if v == nil || !p.kind(v, "score_range", '{', "an object {min, max}") {
		return nil
	}
	p.only(v, "score_range", "min", "max")
	lo, hi := v.member("min"), v.member("max")
	if lo == nil || hi == nil {
		p.refuse("score_range", "one end", "both min and max")
		return nil
	}
	r := &Range{Min: p.number(lo, "score_range.min"), Max: p.number(hi, "score_range.max")}
	if r.Min > r.Max {
		p.refuse("score_range.min", lo.text, "at most score_range.max")
	}
	return r
}

func index(key string, i int) string { return key + "[" + strconv.Itoa(i) + "]" }
