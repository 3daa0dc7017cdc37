package host_test

import (
	"context"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// roots is a loop of square roots that wait for each other: about 5 ns a unit of
// fuel, so that 1 ms ends long before 1,000,000 fuel.
func roots() Code {
	var chain Code
	for range 200 {
		chain = append(chain, 0x9f)
	}
	return Loop(Get(5), chain, Set(5), Br(0))
}

func TestDeadlineTripsOnlyAGuestThatUsedAMillionFuel(t *testing.T) {
	for name, tc := range map[string]struct {
		bad      Code
		deadline time.Duration
		want     policy.State
	}{
		"slow machine, little fuel": {roots(), time.Millisecond, policy.Ready},
		"much fuel":                 {Loop(Br(0)), 40 * time.Millisecond, policy.Tripped},
	} {
		t.Run(name, func(t *testing.T) {
			g := Guest{Score: sparing(tc.bad), ScoreTypes: ColumnTypes, Extra: `,"limits":{"fuel_base":1000000000}`}
			r := newRuntime(t, func(c *host.Config) { c.CallDeadline, c.FuelCap = tc.deadline, 1_000_000_000 })
			rev := revisionOf(t, stage(t, r, g.Bytes(), ""))
			for i := range 30 {
				tab := &policy.Table{}
				tab.Reset(3, rev.Columns())
				if i >= 20 && i%2 == 1 {
					tab.Seed = 666
				}
				var d policy.Decision
				if err := rev.Decide(context.Background(), tab, &d); err != nil {
					t.Fatal(err)
				}
				if d.Fault == nil {
					continue
				}
				if d.Fault.Code != string(abi.EFuel) || d.Fault.Reason != "deadline" || d.Fault.Fuel < abi.FuelSlice {
					t.Fatalf("call %d: got %+v, want a deadline", i, d.Fault)
				}
				if much := d.Fault.Fuel >= 1_000_000; much != (tc.want == policy.Tripped) {
					t.Errorf("call %d: %d fuel", i, d.Fault.Fuel)
				}
			}
			if got := rev.State(); got != tc.want {
				t.Errorf("state: got %s, want %s", got, tc.want)
			}
		})
	}
}
