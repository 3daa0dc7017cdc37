package frame_test

import (
	"math"
	"testing"

	"github.com/routerd/routerd/plugins/abi"
	"github.com/routerd/routerd/plugins/sdk/go/frame"
)

func TestMaxAndMinAreTheComparisonsAsWritten(t *testing.T) {
	nan, negZero := math.NaN(), math.Copysign(0, -1)
	for _, c := range []struct{ a, b, max, min float64 }{
		{1, 2, 2, 1},
		{2, 1, 2, 1},
		{0, negZero, negZero, negZero}, // not greater and not less: the second
		{negZero, 0, 0, 0},
		{nan, 1, 1, 1},
		{1, nan, nan, nan},
		{math.Inf(1), 1, math.Inf(1), 1},
	} {
		if got := frame.Max(c.a, c.b); math.Float64bits(got) != math.Float64bits(c.max) {
			t.Errorf("Max(%v, %v) = %v, want %v", c.a, c.b, got, c.max)
		}
		if got := frame.Min(c.a, c.b); math.Float64bits(got) != math.Float64bits(c.min) {
			t.Errorf("Min(%v, %v) = %v, want %v", c.a, c.b, got, c.min)
		}
	}
}

func TestIDIsTheHosts(t *testing.T) {
	for _, s := range []string{"", "zone-a", "a longer string that takes another path of the hash"} {
		if got, want := frame.ID(s), abi.ID(s); got != want {
			t.Errorf("ID(%q) = %v, want %v", s, got, want)
		}
	}
}

func TestLeastMinorIsThatOfTheTable(t *testing.T) {
	for _, c := range abi.Columns() {
		if got := frame.LeastMinor([]string{"isl_tokens", c.Name}); int(got) != c.Since {
			t.Errorf("%s needs minor %d, want %d", c.Name, got, c.Since)
		}
	}
}
