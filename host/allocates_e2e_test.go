//go:build e2e

package host_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/routerd/routerd/host"
)

const allocatesManifest = `{"abi":"routerd.policy/v1","name":"allocates","version":"1.0.0","kinds":["scorer"],
 "columns":[{"name":"load.active_requests"}],"sdk":{"name":"go"}}`

// allocating calls the guest that allocates 1 MiB a call and returns the guest
// memory after each tenth of the calls, and how many calls failed.
func allocating(t *testing.T, flags string, calls int) (memory []int64, failed int) {
	t.Helper()
	r := newRuntime(t, func(c *host.Config) { c.FuelCap = 100_000_000 })
	s := stage(t, r, buildGuest(t, filepath.Join("testdata", "allocates"), flags, []byte(allocatesManifest)), "")
	began := time.Now()
	for i := range calls {
		if _, _, err := score(s, 64); err != nil {
			if failed++; failed < 4 {
				t.Logf("call %d: %v", i, err)
			}
		}
		if i%(calls/10) == calls/10-1 {
			memory = append(memory, r.Usage().Memory)
		}
	}
	t.Logf("%d calls, %d failed, %s a call, memory %v", calls, failed, time.Since(began)/time.Duration(calls), memory)
	return memory, failed
}

func TestW11_GuestsThatAllocateAMegabyteACall(t *testing.T) {
	for name, flags := range map[string]string{"in one piece": "", "in small pieces": "-X main.small=yes"} {
		t.Run(name, func(t *testing.T) {
			memory, failed := allocating(t, flags, allocatingCalls)
			if failed > 0 {
				t.Errorf("%d of %d calls failed", failed, allocatingCalls)
			}
			if first, last := memory[1], memory[len(memory)-1]; last > first+8<<20 {
				t.Errorf("memory grew from %d to %d bytes after the second tenth", first, last)
			}
		})
	}
}

// TestGuestsThatNeverYieldLiveOnByIdle is why rp_idle is there: between calls
// the collector of a Go guest has no turn of its own.
func TestGuestsThatNeverYieldLiveOnByIdle(t *testing.T) {
	for name, flags := range map[string]string{
		"in one piece": "-X main.careless=yes", "in small pieces": "-X main.careless=yes -X main.small=yes",
	} {
		t.Run(name, func(t *testing.T) {
			if _, failed := allocating(t, flags, allocatingCalls/5); failed > 0 {
				t.Errorf("%d of %d calls failed", failed, allocatingCalls/5)
			}
		})
	}
}
