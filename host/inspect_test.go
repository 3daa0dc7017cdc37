package host_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/wasmtest"
)

func TestInspectTellsWhatAModuleIs(t *testing.T) {
	wasm := wasmtest.Guest{Name: "shown", Imports: [][4]string{{"env", "abort", "iiii", ""}}}.Bytes()
	got, err := host.Inspect(wasm)
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != host.Digest(wasm) || got.Size != len(wasm) || got.Manifest.Name != "shown" {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff([]string{"env.abort"}, got.Imports); diff != "" {
		t.Errorf("imports (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"memory", "rp_abi_v1", "rp_alloc", "rp_configure", "rp_bind", "rp_score"}, got.Exports); diff != "" {
		t.Errorf("exports (-want +got):\n%s", diff)
	}
}

func FuzzInspect(f *testing.F) {
	for _, seed := range [][]byte{nil, good(), formula().Bytes(), wasmtest.Guest{Manifest: "{}"}.Bytes(), lowest()[:100]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		_, err := host.Inspect(wasm)
		var le *host.LoadError
		if err != nil && (!errors.As(err, &le) || le.Code == "" || le.Step == "") {
			t.Fatalf("got %v, want a LoadError with code and step", err)
		}
	})
}
