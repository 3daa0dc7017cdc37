package scorer

import (
	"testing"
	"unsafe"

	"github.com/routerd/routerd/plugins/sdk/go/frame"
)

func TestCallBeforeBindIsAnswered(t *testing.T) {
	called := false
	Register(Plugin{Columns: []string{"kv.usage"}, Score: func(*Batch) error { called = true; return nil }})
	var somewhere [64]byte
	if code := score(unsafe.Pointer(&somewhere)); code != frame.CodeNotBound || called {
		t.Errorf("code %d, called %v", code, called)
	}
}
