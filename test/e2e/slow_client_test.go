//go:build e2e

package e2e_test

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	bigAnswer  = 50 << 20 // bytes
	slowGrowth = 4 << 20  // by which a slow stream may let the router grow
)

// TestD4_SlowClient has one client that reads 1 KiB a second of 50 MiB beside
// 20 that run normally.
func TestD4_SlowClient(t *testing.T) {
	t.Setenv("GOGC", "20") // the heap after collections shows soon
	block := "data: " + strings.Repeat("x", 32<<10-8) + "\n\n"
	f := startFake(t, func(c net.Conn, req *seen) bool {
		if !strings.Contains(string(req.body), `"big"`) {
			say(c, whole(200, "", completion))
			return true
		}
		eventStream(c)
		for range bigAnswer / len(block) {
			if _, err := io.WriteString(c, block); err != nil {
				break
			}
		}
		return false
	})
	r := startRouter(t, fakes(f))
	_, _ = twenty(t, r) // warm up
	var p99, besideP99 [3]time.Duration
	var before, after [3]int64
	for round := range p99 {
		shots, heap := twenty(t, r)
		_, p99[round] = percentiles(shots)
		before[round] = heap
		leave := slowClient(t, r)
		eventually(t, 5*time.Second, func() error { return busy(r, "w1") })
		shots, heap = twenty(t, r)
		leave()
		_, besideP99[round] = percentiles(shots)
		after[round] = heap
		r.idle("m", closeWithin*patience)
	}
	normal, beside := median3(p99[0], p99[1], p99[2]), median3(besideP99[0], besideP99[1], besideP99[2])
	t.Logf("heap after collections %v without and %v with the slow client; p99 of the others %s without, %s beside it (medians %s and %s)",
		before, after, p99, besideP99, normal, beside)
	if grown := min(after[0]-before[0], after[1]-before[1], after[2]-before[2]); grown > slowGrowth {
		t.Errorf("the heap grew by %d KiB each time, want less than %d", grown>>10, slowGrowth>>10)
	}
	if beside > normal*6/5*patience {
		t.Errorf("p99 of the others went from %s to %s, want at most 20 %% more (asserted at %d times)", normal, beside, patience)
	}
}

// slowClient reads 1 KiB a second of the big answer until the returned function
// is called.
func slowClient(t *testing.T, r *router) (leave func()) {
	t.Helper()
	c := dial(t, r.frontend)
	body := `{"model":"m","prompt":"big","stream":true}`
	say(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+
		strconv.Itoa(len(body))+"\r\n\r\n"+body)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_, _ = io.ReadFull(c, make([]byte, 1<<10))
			}
		}
	})
	return func() {
		close(stop)
		wg.Wait()
		_ = c.Close()
	}
}

// busy tells whether a worker has a request.
func busy(r *router, name string) error {
	if r.rank("m", name).Load.Active == 0 {
		return io.ErrNoProgress
	}
	return nil
}

// twenty runs 20 clients for a while, and tells the least heap that was seen
// meanwhile, which is that after a collection.
func twenty(t *testing.T, r *router) ([]shot, int64) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	body := []byte(`{"model":"m","prompt":"hi"}`)
	stop := make(chan struct{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	var shots []shot
	for range 20 {
		wg.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					s := one(client, r.frontend+"/v1/completions", body)
					mu.Lock()
					shots = append(shots, s)
					mu.Unlock()
				}
			}
		})
	}
	var least int64
	tick, end := time.NewTicker(20*time.Millisecond), time.After(slowRun)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-end:
			running = false
		case <-tick.C:
			if heap := int64(sum(r.metrics(), "go_memstats_heap_alloc_bytes")); least == 0 || heap < least {
				least = heap
			}
		}
	}
	close(stop)
	wg.Wait()
	for _, s := range shots {
		if s.err != nil {
			t.Fatalf("another client's request failed: %v", s.err)
		}
	}
	return shots, least
}
