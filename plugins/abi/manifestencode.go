package abi

import (
	"bytes"
	"encoding/json"
	"fmt"
)

type manifestJSON struct {
	ABI           string          `json:"abi"`
	Minor         int             `json:"minor"`
	Name          string          `json:"name"`
	Version       string          `json:"version"`
	Description   string          `json:"description,omitempty"`
	License       string          `json:"license,omitempty"`
	Source        string          `json:"source,omitempty"`
	Kinds         []Kind          `json:"kinds"`
	Columns       []columnJSON    `json:"columns,omitempty"`
	RequestFields []string        `json:"request_fields,omitempty"`
	ConfigSchema  json.RawMessage `json:"config_schema,omitempty"`
	Limits        limitsJSON      `json:"limits"`
	State         StateKind       `json:"state"`
	Deterministic bool            `json:"deterministic"`
	Imports       []string        `json:"imports,omitempty"`
	ScoreRange    *rangeJSON      `json:"score_range,omitempty"`
	Monotonic     []monotonicJSON `json:"monotonic,omitempty"`
	Metrics       []metricJSON    `json:"metrics,omitempty"`
	Traces        []string        `json:"traces,omitempty"`
	SDK           *sdkJSON        `json:"sdk,omitempty"`
	Ext           json.RawMessage `json:"ext,omitempty"`
}

type columnJSON struct {
	Name     string `json:"name"`
	Required bool   `json:"required"`
	Missing  any    `json:"missing"`
}

type limitsJSON struct {
	MemoryPages uint32 `json:"memory_pages"`
	FuelBase    uint64 `json:"fuel_base"`
	FuelPerRow  uint64 `json:"fuel_per_row"`
	MaxRows     int    `json:"max_rows"`
}

type rangeJSON struct {
	Min float64 `json:"min"`
	Max float64 `json:"max"`
}

type monotonicJSON struct {
	Column    string    `json:"column"`
	Direction Direction `json:"direction"`
}

type metricJSON struct {
	Name string     `json:"name"`
	Type MetricType `json:"type"`
	Help string     `json:"help,omitempty"`
}

type sdkJSON struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// Encode is the manifest as indented JSON with every default written out.
// ParseManifest reads it back to an equal value, white space in ConfigSchema
// and Ext apart.
func (m *Manifest) Encode() ([]byte, error) {
	out := manifestJSON{
		ABI: m.ABI, Minor: m.Minor, Name: m.Name, Version: m.Version,
		Description: m.Description, License: m.License, Source: m.Source,
		Kinds: m.Kinds, RequestFields: m.RequestFields, ConfigSchema: m.ConfigSchema,
		Limits: limitsJSON(m.Limits), State: m.State, Deterministic: m.Deterministic,
		Imports: m.Imports, Traces: m.Traces, Ext: m.Ext,
	}
	for _, c := range m.Columns {
		row := columnJSON{Name: c.Name, Required: c.Required, Missing: c.Missing}
		if c.MissingNaN() {
			row.Missing = "nan"
		}
		out.Columns = append(out.Columns, row)
	}
	if m.ScoreRange != nil {
		r := rangeJSON(*m.ScoreRange)
		out.ScoreRange = &r
	}
	for _, row := range m.Monotonic {
		out.Monotonic = append(out.Monotonic, monotonicJSON(row))
	}
	for _, row := range m.Metrics {
		out.Metrics = append(out.Metrics, metricJSON(row))
	}
	if m.SDK != (SDK{}) {
		s := sdkJSON(m.SDK)
		out.SDK = &s
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(out); err != nil {
		return nil, fmt.Errorf("encode manifest of %q: %w", m.Name, err)
	}
	return buf.Bytes(), nil
}
