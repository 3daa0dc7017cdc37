//go:build e2e

package host_test

import (
	"context"
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
)

func TestGoGuestsHaveTheBitsOfTheirNativeTwins(t *testing.T) {
	child, err := host.NewChild()
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	r := newRuntime(t, func(c *host.Config) { c.Compiler, c.CacheDir = child, cache })
	for guest, twin := range map[string]string{"kv-aware": "builtin:kv-aware", "least-loaded": "builtin:least-load"} {
		s := stage(t, r, buildExample(t, guest), "")
		native, err := policy.Builtin(twin, nil)
		if err != nil {
			t.Fatal(err)
		}
		set := s.Columns()
		set.Union(native.Columns())
		for _, n := range []int{1, 2, 8, 64, 1000, 1024} {
			tab := liveTable(set, n)
			want, got := make([]float64, n), make([]float64, n)
			var rep policy.StageReport
			if _, err := native.Score(context.Background(), tab, want, &rep); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Score(context.Background(), tab, got, &rep); err != nil {
				t.Fatalf("%s, %d rows: %v", guest, n, err)
			}
			if _, _, ok := policy.Clean(want, nil); !ok { // −0 is 0, as the pipeline makes it
				t.Fatal("the native twin has no opinion")
			}
			if row := firstOther(want, got); row >= 0 {
				t.Errorf("%s, %d rows, row %d: got %x, want %s's %x", guest, n, row, got[row], twin, want[row])
			}
		}
		for range 3000 {
			if _, _, err := score(s, 64); err != nil {
				t.Fatalf("%s after many calls: %v", guest, err)
			}
		}
	}
}
