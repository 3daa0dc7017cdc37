package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/routerd/routerd/internal/backoff"
)

func TestPausesDoubleUpToTheMost(t *testing.T) {
	for _, c := range []struct {
		first, most time.Duration
		failures    int
		want        time.Duration
	}{
		{time.Second, 5 * time.Second, -1, time.Second},
		{time.Second, 5 * time.Second, 0, time.Second},
		{time.Second, 5 * time.Second, 1, time.Second},
		{time.Second, 5 * time.Second, 2, 2 * time.Second},
		{time.Second, 5 * time.Second, 3, 4 * time.Second},
		{time.Second, 5 * time.Second, 4, 5 * time.Second},
		{time.Second, 4 * time.Second, 3, 4 * time.Second},
		{time.Second, 5 * time.Second, math.MaxInt, 5 * time.Second},
		{time.Second, math.MaxInt64, math.MaxInt, math.MaxInt64},
		{9 * time.Second, 5 * time.Second, 1, 5 * time.Second},
		{0, 5 * time.Second, math.MaxInt, 0},
		{0, 0, 3, 0},
	} {
		if got := backoff.Doubled(c.first, c.most, c.failures); got != c.want {
			t.Errorf("%v up to %v after %d failures: got %v, want %v", c.first, c.most, c.failures, got, c.want)
		}
		least := c.want - c.want/5
		if got := backoff.Pause(c.first, c.most, c.failures); got < least || got > c.want {
			t.Errorf("a pause of %v, want %v to %v", got, least, c.want)
		}
	}
}

func TestPausesDiffer(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[backoff.Pause(time.Second, time.Second, 1)] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d different ones of 100", len(seen))
	}
}
