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
	}{
		"slow machine, little fuel": {roots(), time.Millisecond},
		"much fuel":                 {Loop(Br(0)), 40 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			g := Guest{Score: sparing(tc.bad), ScoreTypes: ColumnTypes, Extra: `,"limits":{"fuel_base":1000000000}`}
			r := newRuntime(t, func(c *host.Config) { c.CallDeadline, c.FuelCap = tc.deadline, 1_000_000_000 })
			rev := revisionOf(t, stage(t, r, g.Bytes(), ""))
			much, fuel := 0, uint64(0)
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
				if fuel = d.Fault.Fuel; fuel >= 1_000_000 {
					much++
				}
			}
			want := policy.Ready // five of the 30 calls are enough to trip
			if much == 5 {
				want = policy.Tripped
			}
			if got := rev.State(); got != want {
				t.Errorf("state: got %s, want %s after %d deadlines of much fuel, the last of %d", got, want, much, fuel)
			}
			if tc.deadline == time.Millisecond && much > 0 {
				t.Errorf("%d deadlines of much fuel in 1 ms each, the last of %d", much, fuel)
			}
		})
	}
}
