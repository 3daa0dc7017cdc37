package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
	. "github.com/routerd/routerd/host/wasmtest"
)

// numbered is a module that compiles to something of its own.
func numbered(i int) []byte {
	return Guest{ScoreTypes: ColumnTypes, Score: Cat(I32(int32(i)), Op(Drop), Column(0, Op(F64Neg)))}.Bytes()
}

// inCache counts the markers and compiled modules of a cache folder.
func inCache(t *testing.T, dir string) string {
	t.Helper()
	marks, err := filepath.Glob(filepath.Join(dir, "ok-*"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d markers, %d modules", len(marks), len(files))
}

func TestCompiledFormsOfModulesThatAreGoneAreSwept(t *testing.T) {
	dir, kept := t.TempDir(), t.TempDir()
	r, reg := childRuntime(t, dir)
	for i := range 3 {
		useOnce(t, r, numbered(i))
	}
	old := filepath.Join(dir, "wazero-v0.0.1-amd64-linux")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	modules, err := store.Open(filepath.Join(kept, "modules"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := modules.Put("kept", strings.NewReader(string(numbered(1))), ""); err != nil {
		t.Fatal(err)
	}
	src, err := host.OpenPolicySource(context.Background(), r, modules, host.PolicyConfig{Dir: filepath.Join(kept, "policies")}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if got, want := inCache(t, dir), "1 markers, 1 modules"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the folder of another engine: %v, want it gone", err)
	}
	before := compiles(t, reg)
	useOnce(t, r, numbered(1))
	if n := compiles(t, reg); n != before {
		t.Error("the module that is stored was compiled again")
	}
}

func TestFolderOfCompiledModulesIsBounded(t *testing.T) {
	dir := t.TempDir()
	r, reg := childRuntime(t, dir)
	useOnce(t, r, numbered(0))
	useOnce(t, r, numbered(1))
	useOnce(t, r, numbered(0)) // 1 is now the one that was used longest ago
	host.SetCompiledBytes(r, 5*compiledBytes(t, dir)/4)
	useOnce(t, r, numbered(2))
	if got, want := inCache(t, dir), "2 markers, 2 modules"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	before := compiles(t, reg)
	useOnce(t, r, numbered(0))
	useOnce(t, r, numbered(2))
	if n := compiles(t, reg); n != before {
		t.Errorf("%d modules that were used last were compiled again", n-before)
	}
	host.SetCompiledBytes(r, 1)
	useOnce(t, r, numbered(3))
	if got, want := inCache(t, dir), "1 markers, 1 modules"; got != want {
		t.Errorf("with no room: got %s, want %s", got, want)
	}
}

func compiledBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		n += st.Size()
	}
	return n
}
