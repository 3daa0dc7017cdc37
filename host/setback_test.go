package host_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/routerd/routerd/host/wasmtest"
)

func TestFramesThatCannotGrowSayWhy(t *testing.T) {
	rt, reg, out := told(t)
	g := growing()
	// More than 1,024 rows are refused.
	g.Bind = Cat(I32(1024), Get(1), Op(I32LtU), If(I32(-3), Op(Return)), I32(0))
	s := stage(t, rt, g.Bytes(), "")
	began := time.Now()
	eventually(t, "the fault tells why", func() bool {
		f := faulted(t, s, 2000)
		return f.Reason == "capacity" && strings.Contains(f.Detail, "cannot grow") && strings.Contains(f.Detail, "rp_bind returned -3")
	})
	for time.Since(began) < 1500*time.Millisecond {
		faulted(t, s, 2000)
	}
	if n := values(t, reg)["routerd_plugin_growth_failures_total{test}"]; n < 1 || n > 2 {
		t.Errorf("%v failures in 1.5 s, want one a second at most", n)
	}
	if n := strings.Count(out.String(), "frames cannot grow"); n != 1 {
		t.Errorf("told the log %d times, want once", n)
	}
}
