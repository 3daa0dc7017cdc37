package scorertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/routerd/routerd/plugins/abi"
	"github.com/routerd/routerd/plugins/sdk/go/scorer"
)

// Check holds a plugin to its manifest: the manifest parses, is for a scorer
// made with this SDK, names the plugin's columns and fields in its order, and has
// a property in config_schema for each field config.NAME, without which `plugin
// pack` refuses it; and a plugin that says NoAllocs allocates nothing on b. It
// returns the manifest.
func Check(t *testing.T, p scorer.Plugin, manifest []byte, b Batch) *abi.Manifest {
	t.Helper()
	m, err := abi.ParseManifest(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range differences(p, m) {
		t.Error(what)
	}
	f, err := NewFrame(p, b)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.run(); err != nil {
		t.Fatal(err)
	}
	if !p.NoAllocs {
		return m
	}
	if n := testing.AllocsPerRun(100, func() { _ = f.run() }); n != 0 {
		t.Errorf("the plugin says NoAllocs and makes %v allocations a call", n)
	}
	return m
}

// differences are what keeps a plugin and its manifest from being one module.
func differences(p scorer.Plugin, m *abi.Manifest) (out []string) {
	if !m.HasKind(abi.KindScorer) || m.SDK.Name != abi.SDKGo {
		out = append(out, fmt.Sprintf("manifest has kinds %v and sdk %q, want %s and %s", m.Kinds, m.SDK.Name, abi.KindScorer, abi.SDKGo))
	}
	var columns []string
	for _, c := range m.Columns {
		columns = append(columns, c.Name)
	}
	if !slices.Equal(columns, p.Columns) {
		out = append(out, fmt.Sprintf("manifest has columns %q, the plugin %q", columns, p.Columns))
	}
	if !slices.Equal(m.RequestFields, p.Fields) {
		out = append(out, fmt.Sprintf("manifest has request fields %q, the plugin %q", m.RequestFields, p.Fields))
	}
	return append(out, undeclared(m)...)
}

// undeclared are the fields config.NAME that no configuration can have: the
// schema allows its properties alone, and NAME is none of them. Of a field that
// leads deeper only the first step is looked at.
func undeclared(m *abi.Manifest) (out []string) {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Additional json.RawMessage            `json:"additionalProperties"`
	}
	if len(m.ConfigSchema) > 0 && (json.Unmarshal(m.ConfigSchema, &schema) != nil || string(schema.Additional) != "false") {
		return nil
	}
	for _, f := range m.RequestFields {
		pointer, ok := abi.ConfigPointer(f)
		if !ok {
			continue
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
		first = strings.NewReplacer("~1", "/", "~0", "~").Replace(first)
		if _, ok := schema.Properties[first]; !ok {
			out = append(out, "manifest has the request field "+f+", and config_schema no property "+strconv.Quote(first))
		}
	}
	return out
}
