package host_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// eventually waits for what a background goroutine does.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func growing() Guest {
	g := formula()
	g.Pages, g.Extra = 32, `,"limits":{"max_rows":5000}`
	return g
}

func TestFramesGrowInTheBackgroundWithEqualBits(t *testing.T) {
	r := newRuntime(t)
	s := stage(t, r, growing().Bytes(), "")
	before, _ := scoresOf(t, s, liveTable(s.Columns(), 1000))
	instances := r.Usage().Instances
	f := faulted(t, s, 3000)
	if f.Reason != "capacity" || f.Counts || f.Code != string(abi.EPool) {
		t.Fatalf("got %+v, want capacity that does not count", f)
	}
	eventually(t, "3,000 rows are answered", func() bool { _, _, err := score(s, 3000); return err == nil })
	tab := liveTable(s.Columns(), 3000)
	got, _ := scoresOf(t, s, tab)
	want := formulaNative(tab.Column(abi.ColLoadActiveRequests), tab.Column(abi.ColKVOverlapDevice))
	if row := firstOther(want, got); row >= 0 {
		t.Errorf("row %d: got %v, want the native twin's %v", row, got[row], want[row])
	}
	if after, _ := scoresOf(t, s, liveTable(s.Columns(), 1000)); !sameBits(before, after) {
		t.Error("1,000 rows have other bits after growth")
	}
	eventually(t, "as many instances as before", func() bool { return r.Usage().Instances == instances })
	if f := faulted(t, s, 5001); f.Reason != "capacity" {
		t.Errorf("more than max_rows: got %+v", f)
	}
	// A pool that is opened now begins with what was needed.
	other := growing()
	other.Name = "other"
	if _, _, err := score(stage(t, r, other.Bytes(), ""), 3000); err != nil {
		t.Errorf("a later pool: %v", err)
	}
}

func TestCallsGoOnWhileFramesGrow(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.Instances = 4 })
	s := stage(t, r, growing().Bytes(), "")
	var wg sync.WaitGroup
	for caller := range 8 {
		wg.Go(func() {
			for i := range 300 {
				rows := 10
				if caller == 0 && i > 100 {
					rows = 1000 + 20*i
				}
				if rows > 5000 {
					rows = 5000
				}
				got, _, err := score(s, rows)
				var f *policy.Fault
				if errors.As(err, &f) && f.Reason == "capacity" && rows > 1024 {
					continue
				}
				if err != nil || len(got) != rows || math.IsNaN(got[rows-1]) {
					t.Errorf("%d rows: %v", rows, err)
					return
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "the largest frame", func() bool { _, _, err := score(s, 5000); return err == nil })
	if u := r.Usage(); u.Instances > 4+1 {
		t.Errorf("%d instances, want at most 4 and an audit's", u.Instances)
	}
}

func TestWithoutMemoryFramesStayAsTheyAre(t *testing.T) {
	r := newRuntime(t, func(c *host.Config) { c.MemoryLimit = 4 << 20 })
	s := stage(t, r, growing().Bytes(), "") // two of 2 MiB
	for range 3 {
		if f := faulted(t, s, 2000); f.Reason != "capacity" {
			t.Fatalf("got %+v", f)
		}
		if _, _, err := score(s, 1000); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAModuleWithoutRoomForTheFleetStillLoads(t *testing.T) {
	r := newRuntime(t)
	large := growing()
	large.Extra = `,"limits":{"max_rows":60000,"memory_pages":1000}`
	large.Pages = 300
	s := stage(t, r, large.Bytes(), "")
	_, _, _ = score(s, 60_000)
	eventually(t, "60,000 rows are answered", func() bool {
		_, err := s.Score(context.Background(), table(s, 60_000), make([]float64, 60_000), &policy.StageReport{})
		var f *policy.Fault
		return err == nil || errors.As(err, &f) && f.Reason == "fuel"
	})
	small := Guest{Name: "small", Extra: `,"limits":{"max_rows":60000}`} // 4 pages
	if _, _, err := score(stage(t, r, small.Bytes(), ""), 1000); err != nil {
		t.Error(err)
	}
}

func TestMaxRowsBelowTheFirstFrame(t *testing.T) {
	s := stage(t, newRuntime(t), Guest{Extra: `,"limits":{"max_rows":3}`}.Bytes(), "")
	if got, _, err := score(s, 3); err != nil || !cmp.Equal([]float64{0, -1, -2}, got) {
		t.Errorf("got %v, %v", got, err)
	}
	if f := faulted(t, s, 4); f.Reason != "capacity" {
		t.Errorf("got %+v", f)
	}
}
