//go:build !wasip1

package guest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/plugins/sdk/go/guest"
)

func TestNativeLogKeepsCutLines(t *testing.T) {
	guest.TakeLog()
	guest.Log(guest.Warn, "short")
	guest.Log(guest.Error, strings.Repeat("x", 600))
	want := []guest.Line{{guest.Warn, "short"}, {guest.Error, strings.Repeat("x", 512)}}
	if d := cmp.Diff(want, guest.TakeLog()); d != "" {
		t.Error(d)
	}
	if got := guest.TakeLog(); len(got) != 0 {
		t.Errorf("lines taken twice: %v", got)
	}
}

func TestNativeMetricsAndTracesAreKept(t *testing.T) {
	guest.TakeValues()
	guest.AddMetric(0, 1)
	guest.SetMetric(1, 2.5)
	guest.Trace(2, -1)
	want := []guest.Value{{"metric_add", 0, 1}, {"metric_set", 1, 2.5}, {"trace", 2, -1}}
	if d := cmp.Diff(want, guest.TakeValues()); d != "" {
		t.Error(d)
	}
	if got := guest.TakeValues(); len(got) != 0 {
		t.Errorf("values taken twice: %v", got)
	}
}
