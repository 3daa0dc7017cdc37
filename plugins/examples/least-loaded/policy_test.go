package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/plugins/sdk/go/scorertest"
)

func active(n ...float64) scorertest.Batch {
	return scorertest.Batch{Columns: map[string][]float64{"load.active_requests": n}}
}

func TestPluginIsWhatItsManifestSays(t *testing.T) {
	manifest, err := os.ReadFile("manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	scorertest.Check(t, plugin(), manifest, active(1, 2))
}

func TestScoreIsMinusTheActiveRequests(t *testing.T) {
	got, err := scorertest.Run(plugin(), active(3, 0, 12))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]float64{-3, 0, -12}, got); d != "" {
		t.Error(d)
	}
}
