package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// bomb is many functions, each of nested blocks with branches near the static
// limits: a second of compiling for each 40.
func bomb() []byte { return bombOf(40) }

func bombOf(functions int) []byte {
	return Guest{Before: func(m *Module) {
		var body Code
		for range 900 {
			body = Block(body, Get(0), BrIf(0), Get(0), I32(1), Op(I32Add), Set(0))
		}
		for range functions {
			m.Func("i", "", "iiiiiiiiiiiiiiii", body)
		}
	}}.Bytes()
}

func TestW4_CompileBombEndsInItsChild(t *testing.T) {
	child, err := host.NewChild()
	if err != nil {
		t.Fatal(err)
	}
	child.SetWall(700 * time.Millisecond)
	cache := t.TempDir()
	r := newRuntime(t, func(c *host.Config) { c.Compiler, c.CacheDir = child, cache })
	began := time.Now()
	le := refused(t, r, bomb(), "")
	if le.Code != abi.ECompileLimit || le.Step != host.StepCompile {
		t.Errorf("got %v, want %s at step %s", le, abi.ECompileLimit, host.StepCompile)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	child.SetWall(time.Minute)
	useOnce(t, r, good()) // the next one compiles as if nothing had been
}

func TestCallerWhoGoesEndsTheCompile(t *testing.T) {
	child, err := host.NewChild()
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	r := newRuntime(t, func(c *host.Config) { c.Compiler, c.CacheDir = child, cache })
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	wasm := bomb()
	_, err = loaded(ctx, r, "module:test", wasm)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the caller's deadline", err)
	}
}

func TestW4_StaticLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		wasm []byte
		code abi.HostCode
		text string
	}{
		"table of 100,000,000": {Guest{Before: func(m *Module) { m.Table(100_000_000, 100_000_000) }}.Bytes(), abi.ELimit, "100000000"},
		"1,000,000 globals": {Guest{Before: func(m *Module) {
			for range 2_000 {
				m.Global(0)
			}
		}}.Bytes(), abi.ELimit, "global"},
		"two memories":             {Guest{Before: func(m *Module) { m.Memory(1, -1) }}.Bytes(), "", "memor"},
		"data of 5 MiB":            {Guest{After: func(m *Module) { m.Data(0, make([]byte, 5<<20)) }}.Bytes(), abi.ELimit, "data"},
		"function of 2,000 locals": {Guest{After: func(m *Module) { m.Func("", "", strings.Repeat("i", 2000)) }}.Bytes(), abi.ELimit, "local"},
	} {
		le := refused(t, newRuntime(t), tc.wasm, "")
		if tc.code != "" && le.Code != tc.code || !strings.Contains(le.Error(), tc.text) {
			t.Errorf("%s: got %v, want %s with %q", name, le, tc.code, tc.text)
		}
	}
}
