package meter_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/routerd/routerd/host/meter"
)

// FuzzRewrite takes any bytes. What Decode accepts is rewritten; the second decoder must find every charge;
// the output must decode again; and where the engine compiles the input it must compile the output.
func FuzzRewrite(f *testing.F) {
	f.Add(richModule())
	f.Add(scoreKernel())
	for _, tc := range equalCases {
		f.Add(tc.wasm())
	}
	for _, tc := range costCases {
		f.Add(costModule(tc.locals, tc.code))
	}
	for _, tc := range hostileCases {
		if len(tc.wasm) < 1000 {
			f.Add(tc.wasm)
		}
	}
	for seed := range int64(20) {
		_, _, wasm := newProgram(seed)
		f.Add(wasm)
	}
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(64))
	f.Cleanup(func() { rt.Close(ctx) })
	compiles := func(wasm []byte) error {
		c, err := rt.CompileModule(ctx, wasm)
		if err == nil {
			c.Close(ctx)
		}
		return err
	}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		if len(wasm) > 1<<16 {
			return
		}
		m, err := meter.Decode(wasm, meter.DefaultLimits())
		if err != nil {
			return
		}
		out, err := m.Rewrite(options)
		if err != nil {
			return
		}
		if err := verify(out); err != nil {
			t.Fatal(err)
		}
		again, err := m.Rewrite(options)
		if err != nil || !bytes.Equal(out, again) {
			t.Fatalf("second rewrite differs: %v", err)
		}
		if compiles(wasm) == nil {
			if err := compiles(out); err != nil {
				t.Fatalf("the engine compiles the input, not the output: %v", err)
			}
		}
	})
}
