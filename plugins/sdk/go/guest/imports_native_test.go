//go:build !wasip1

package guest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNativeLogKeepsCutLines(t *testing.T) {
	TakeLog()
	Log(Warn, "short")
	Log(Error, strings.Repeat("x", 600))
	want := []Line{{Warn, "short"}, {Error, strings.Repeat("x", 512)}}
	if d := cmp.Diff(want, TakeLog()); d != "" {
		t.Error(d)
	}
	if got := TakeLog(); len(got) != 0 {
		t.Errorf("lines taken twice: %v", got)
	}
}
