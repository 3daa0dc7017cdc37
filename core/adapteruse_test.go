package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// TestPoliciesSeeWhatAWorkerDoesWithAdapters: how many are in use, whether that of
// the request is, and since when it is not.
func TestPoliciesSeeWhatAWorkerDoesWithAdapters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saw []float64
		s := &stage{score: func(_ context.Context, tb *policy.Table, _ []float64) error {
			saw = []float64{tb.Column(abi.ColLoraActive)[0], tb.Column(abi.ColLoraIsActive)[0], tb.Column(abi.ColLoraLastUsedMs)[0]}
			return nil
		}}
		s.columns.AddStd(abi.ColLoraActive, abi.ColLoraIsActive, abi.ColLoraLastUsedMs)
		w := newWorld(t, use("module:s"), stages{s})
		rec := record("w1", "m1")
		rec.Adapters = []fleet.Adapter{{Name: "sql"}, {Name: "chat"}}
		w.join(t, rec)
		var held []*reserve.Reservation
		expect := func(adapter string, want ...float64) {
			t.Helper()
			req := bookRequest("", nil)
			req.Adapter = adapter
			sel, err := w.Select(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, sel.Reservation)
			if diff := cmp.Diff(want, saw); diff != "" {
				t.Errorf("%s: active, is_active, last_used_ms (-want +got):\n%s", adapter, diff)
			}
		}
		expect("sql", 0, 0, abi.MissingAge)
		<-time.After(time.Second)
		expect("sql", 1, 1, 1000)
		expect("chat", 1, 0, abi.MissingAge)
		expect("sql", 2, 1, 0)
		for _, r := range held {
			r.Release(reserve.Outcome{Kind: reserve.Completed})
		}
		<-time.After(3 * time.Second)
		expect("chat", 0, 0, 3000)
	})
}
