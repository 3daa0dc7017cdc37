//go:build e2e

package app_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/routerd/routerd/fleet"
)

func TestAWorkerOfManyRanksLeavesWithoutHoldingUpAnybody(t *testing.T) {
	const most = 4096
	e := engine(t, "e1", nil)
	f := fleetOf(t, true, nil)
	big := wish(t, 1, func(r *fleet.Record) {
		r.DPSize, r.KVEvents = most, map[int]string{}
		for rank := range most {
			r.KVEvents[rank] = "tcp://127.0.0.1:1" // nobody is there, which saves the files of as many connections
		}
	})
	small := behind(t, 2, e, nil)
	applied(t, f, big, small)
	if f.Listens.Load() != most+1 {
		t.Fatalf("%d ranks are listened to", f.Listens.Load())
	}
	began := time.Now()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if err := f.Reconciler.Apply(context.Background(), "file", []fleet.Record{small}); err != nil {
			t.Error(err)
		}
	}()
	longest := time.Duration(0) // of a selection while it leaves
	for i, left := 0, false; !left; i++ {
		select {
		case <-gone:
			left = true
		default:
		}
		at := time.Now()
		if _, err := book(t, f, fmt.Sprint(i), pinned(2, 0)); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(at))
	}
	took := time.Since(began)
	t.Logf("it left within %s; the longest selection meanwhile took %s", took, longest)
	if took > 10*time.Second || longest > 2*time.Second {
		t.Errorf("it left within %s, the longest selection meanwhile took %s", took, longest)
	}
	fill(t, e, 0, tokensFrom(1000, 64))
	heard(t, f, e, fleet.Worker{ID: 2})
	if n := f.Blocks(oneModel, fleet.Worker{ID: 1, Rank: most - 1}); n != 0 {
		t.Errorf("%d blocks are left", n)
	}
}
