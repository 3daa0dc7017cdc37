package meter_test

import (
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/routerd/routerd/host/meter"
)

func TestDeadCodeIsLeftOut(t *testing.T) {
	grow := cat(i32c(1), 0x40, 0, 0x1a)
	for name, code := range map[string][]byte{
		"after unreachable":       cat(0x00, repeat(5000, grow)),
		"after return":            cat(0x0f, repeat(5000, grow)),
		"over an empty stack":     cat(0x00, repeat(5000, 0x40, 0), 0x1a),
		"blocks and branches":     cat(0x00, repeat(1000, 0x02, 0x40, 0x03, 0x40, 0x0c, 1, 0x0b, 0x0b, i32c(0), 0x04, 0x40, 0x05, 0x0c, 1, 0x0b)),
		"use of a dead result":    cat(0x02, i32, 0x00, 0x0b, repeat(5000, 0x40, 0), 0x1a),
		"after an endless loop":   cat(0x03, i32, 0x0c, 0, 0x0b, repeat(5000, 0x40, 0), 0x1a),
		"else of a dead if":       cat(i32c(0), 0x04, 0x40, 0x00, repeat(2000, grow), 0x05, 0x0f, repeat(2000, grow), 0x0b),
		"block named by the dead": cat(0x02, i32, 0x00, 0x02, 0x40, i32c(1), 0x0c, 1, 0x0b, repeat(5000, 0x40, 0), 0x0b, 0x1a),
	} {
		t.Run(name, func(t *testing.T) {
			b := void(nil, code)
			b.memory(1)
			wasm := b.bytes()
			rt := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter())
			defer rt.Close(t.Context())
			if _, err := rt.CompileModule(t.Context(), wasm); err != nil {
				t.Fatalf("original: %v", err)
			}
			out := rewrite(t, wasm)
			if err := verify(out); err != nil {
				t.Error(err)
			}
			if _, err := newMachine(t, out, 0); err != nil {
				t.Error(err)
			}
			if len(out) > 400 {
				t.Errorf("%d bytes became %d, want at most 400", len(wasm), len(out))
			}
		})
	}
}

func TestOutputIsBoundedWhileItGrows(t *testing.T) {
	b := &builder{}
	v := b.typ(nil, nil)
	for range 2600 {
		b.fn(v, nil, repeat(1000, 0x03, 0x40, 0x0b)) // empty loops, 12 times as long when metered
	}
	m := decode(t, b.bytes())
	_, err := m.Rewrite(options)
	wantRefusal(t, err, meter.CodeLimit, meter.StepRewrite, "metered bodies up to function")

	lim := meter.DefaultLimits()
	small := void(nil, repeat(100, 0x03, 0x40, 0x0b)).bytes()
	size := len(rewrite(t, small))
	for _, tc := range []struct {
		most int
		ok   bool
	}{{size, true}, {size / 2, false}} {
		lim.OutputBytes = tc.most
		m, err := meter.Decode(small, lim)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Rewrite(options); (err == nil) != tc.ok {
			t.Errorf("%d bytes of output where %d are allowed: got %v", size, tc.most, err)
		}
	}
}
