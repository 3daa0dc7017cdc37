package host_test

import (
	"testing"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
)

// Modules that differ only in what is not executed share a compiled form.
func TestASharedCompiledFormStaysForTheOther(t *testing.T) {
	dir := t.TempDir()
	r, reg := cacheRuntime(t, dir)
	one, two := Guest{Name: "one"}.Bytes(), Guest{Name: "two"}.Bytes()
	useOnce(t, r, one)
	useOnce(t, r, two)
	if got, want := inCache(t, dir), "2 markers, 1 modules"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	r.Forget(host.Digest(one))
	if got, want := inCache(t, dir), "1 markers, 1 modules"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	before := compiles(t, reg)
	useOnce(t, r, two)
	if n, healed := compiles(t, reg), counted(t, reg, rebuilds); n != before || healed != 0 {
		t.Errorf("compiled %d times more, %v rebuilds", n-before, healed)
	}
}
