package frontend_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/routerd/routerd/frontend"
)

// Every byte at every place of a word is seen, whatever surrounds it.
func TestEveryByteOfALongStringIsChecked(t *testing.T) {
	for n := range 40 {
		for c := range 256 {
			body := []byte(`"` + strings.Repeat("a", n) + string([]byte{byte(c)}) + strings.Repeat("é", 12) + `"`)
			if got, want := frontend.ValidJSON(body), json.Valid(body); got != want {
				t.Errorf("byte %#x after %d: accepted %t, want %t", c, n, got, want)
			}
		}
	}
}

func BenchmarkScanLargePrompt(b *testing.B) {
	body := []byte(`{"model":"m","prompt":"` + strings.Repeat(`Some text with a \"quote\" and a line.\n`, 13000) + `"}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if !frontend.ValidJSON(body) {
			b.Fatal("refused")
		}
	}
}
