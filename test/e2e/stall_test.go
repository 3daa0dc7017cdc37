//go:build e2e

package e2e_test

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// delayedBy is by how much hostile calls may delay others (W2).
const delayedBy = 50 * time.Millisecond

// worstProbe asks for the router's health each 5 ms for a while and returns the
// longest that an answer took. Meanwhile 20 clients send requests with the
// given max_tokens.
func worstProbe(t *testing.T, r *router, maxTokens int) time.Duration {
	t.Helper()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if status, _, _ := r.complete(maxTokens); status != http.StatusOK {
					t.Errorf("status %d, want 200", status)
					return
				}
			}
		})
	}
	var worst time.Duration
	tick, end := time.NewTicker(5*time.Millisecond), time.After(time.Second)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-end:
			running = false
		case <-tick.C:
			began := time.Now()
			resp, err := http.Get(r.admin + "/healthz")
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			worst = max(worst, time.Since(began))
		}
	}
	close(stop)
	wg.Wait()
	return worst
}

// While guests use up their budgets and collections run all the time, nobody
// else waits for them.
func TestW2_HostileCallsDelayNobodyElse(t *testing.T) {
	t.Setenv("GOGC", "5")
	r := startRouter(t, three(t)+"plugins: {guard: \"off\"}\n")
	for i, c := range hostileCalls()[:3] {
		r.activate(r.revise("stall-"+string(rune('a'+i)), c.guest.Bytes()))
		var with, without [3]time.Duration
		for run := range 3 {
			without[run] = worstProbe(t, r, 2)
			with[run] = worstProbe(t, r, armedAt)
		}
		w, wo := median3(with[0], with[1], with[2]), median3(without[0], without[1], without[2])
		t.Logf("%s: the longest probe took %s with, %s without (medians of three)", c.name, w, wo)
		if w-wo > delayedBy*patience {
			t.Errorf("%s: probes take %s longer, want at most %s (asserted at %d times)", c.name, w-wo, delayedBy, patience)
		}
	}
}
