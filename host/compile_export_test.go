package host

import (
	"testing"

	"github.com/routerd/routerd/host/meter"
)

// LargeWork is what is done with a module's bytes outside a compile child.
func LargeWork(t *testing.T, wasm []byte) map[string]func() {
	t.Helper()
	m, err := meter.Decode(wasm, meter.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	out, err := rewrite(m, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes become %d", len(wasm), len(out))
	return map[string]func(){
		"decoding": func() {
			if _, err := meter.Decode(wasm, meter.DefaultLimits()); err != nil {
				t.Error(err)
			}
		},
		"rewriting": func() {
			if _, err := rewrite(m, 64); err != nil {
				t.Error(err)
			}
		},
		"naming": func() { cacheKey(wasm, out) },
	}
}
