package scorertest

import (
	"slices"
	"testing"

	"github.com/routerd/routerd/plugins/abi"
	"github.com/routerd/routerd/plugins/sdk/go/scorer"
)

// Check holds a plugin to its manifest: the manifest parses, is for a scorer
// made with this SDK, and names the plugin's columns and fields in its order; and
// a plugin that says NoAllocs allocates nothing on b. It returns the manifest.
func Check(t *testing.T, p scorer.Plugin, manifest []byte, b Batch) *abi.Manifest {
	t.Helper()
	m, err := abi.ParseManifest(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if !m.HasKind(abi.KindScorer) || m.SDK.Name != abi.SDKGo {
		t.Errorf("manifest has kinds %v and sdk %q, want %s and %s", m.Kinds, m.SDK.Name, abi.KindScorer, abi.SDKGo)
	}
	var columns []string
	for _, c := range m.Columns {
		columns = append(columns, c.Name)
	}
	if !slices.Equal(columns, p.Columns) {
		t.Errorf("manifest has columns %q, the plugin %q", columns, p.Columns)
	}
	if !slices.Equal(m.RequestFields, p.Fields) {
		t.Errorf("manifest has request fields %q, the plugin %q", m.RequestFields, p.Fields)
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
