// Package sdk_test builds what must build for a guest.
package sdk_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// guestGo runs the go command for a guest.
func guestGo(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
}

func TestABIAndSDKBuildForGuests(t *testing.T) {
	guestGo(t, "vet", "../../abi", "../../abi/xxh3", "./frame", "./guest", "./scorer")
}

func TestExamplesExportAndImportWhatTheABISays(t *testing.T) {
	exports := []string{
		"_initialize", "memory", "rp_abi_v1", "rp_alloc", "rp_bind",
		"rp_configure", "rp_idle", "rp_last_error", "rp_score",
	}
	for _, example := range []string{"kv-aware", "least-loaded"} {
		t.Run(example, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "plugin.wasm")
			guestGo(t, "build", "-trimpath", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out, "../../examples/"+example)
			wasm, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if len(wasm) > 2<<20 {
				t.Errorf("%d bytes: does the guest carry a package that it does not need?", len(wasm))
			}
			m := &walker{rest: wasm[8:]}
			m.sections()
			slices.Sort(m.exports)
			if d := cmp.Diff(exports, m.exports); d != "" {
				t.Error(d)
			}
			for _, from := range m.imports {
				if from != "wasi_snapshot_preview1" {
					t.Errorf("imports from %q", from)
				}
			}
		})
	}
}

// walker reads the export names and import modules of a module that the Go tool
// chain made, so of one that is well formed.
type walker struct {
	rest    []byte
	exports []string
	imports []string
}

func (w *walker) sections() {
	for len(w.rest) > 0 {
		id := w.rest[0]
		w.rest = w.rest[1:]
		body := w.take(w.number())
		in := &walker{rest: body}
		switch id {
		case 2:
			for range in.number() {
				w.imports = append(w.imports, string(in.take(in.number())))
				in.take(in.number())
				in.take(1) // a function
				in.number()
			}
		case 7:
			for range in.number() {
				w.exports = append(w.exports, string(in.take(in.number())))
				in.take(1)
				in.number()
			}
		}
	}
}

func (w *walker) number() int {
	v, n := binary.Uvarint(w.rest)
	w.rest = w.rest[n:]
	return int(v)
}

func (w *walker) take(n int) []byte {
	b := w.rest[:n]
	w.rest = w.rest[n:]
	return b
}
