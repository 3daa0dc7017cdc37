//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load is traffic from a number of callers, each of which sends its next request
// when it is due and the last one is answered.
type load struct {
	tokens atomic.Int64 // max_tokens of the requests to come
	sent   atomic.Int64
	stop   chan struct{}
	wg     sync.WaitGroup

	mu    sync.Mutex // guards shots
	shots []shot
}

// startLoad sends rate requests a second in all; with a rate of 0, as many as are
// answered.
func startLoad(r *router, callers, rate int) *load {
	l := &load{stop: make(chan struct{})}
	l.tokens.Store(2)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}, Timeout: time.Minute}
	began := time.Now()
	for c := range callers {
		l.wg.Go(func() {
			defer client.CloseIdleConnections()
			for i := c; l.due(began, i, rate); i += callers {
				s := one(client, r.frontend+"/v1/completions", fmt.Appendf(nil, `{"model":"m","prompt":"one two three","max_tokens":%d}`, l.tokens.Load()))
				l.sent.Add(1)
				l.mu.Lock()
				l.shots = append(l.shots, s)
				l.mu.Unlock()
			}
		})
	}
	return l
}

// due waits until request number i is due; false when the load has ended.
func (l *load) due(began time.Time, i, rate int) bool {
	wait := time.Duration(0)
	if rate > 0 {
		wait = time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate)))
	}
	if wait <= 0 {
		select {
		case <-l.stop:
			return false
		default:
			return true
		}
	}
	select {
	case <-l.stop:
		return false
	case <-time.After(wait):
		return true
	}
}

// reach waits until n more requests are answered.
func (l *load) reach(t *testing.T, n int) {
	t.Helper()
	until := l.sent.Load() + int64(n)
	eventually(t, time.Minute, func() error {
		if got := l.sent.Load(); got < until {
			return fmt.Errorf("%d requests of %d are answered", got, until)
		}
		return nil
	})
}

// end stops the load and returns all requests in the order in which they were
// sent.
func (l *load) end() []shot {
	close(l.stop)
	l.wg.Wait()
	slices.SortFunc(l.shots, func(a, b shot) int { return a.sent.Compare(b.sent) })
	return l.shots
}

// burst sends n requests from a number of callers as fast as they are answered.
func burst(t *testing.T, r *router, callers, n int) []shot {
	t.Helper()
	l := startLoad(r, callers, 0)
	l.reach(t, n)
	return l.end()
}

// noneFailed checks that every request was answered well.
func noneFailed(t *testing.T, shots []shot) {
	t.Helper()
	failed := 0
	for _, s := range shots {
		if s.err == nil {
			continue
		}
		if failed++; failed <= 3 {
			t.Errorf("a request failed: %v", s.err)
		}
	}
	if failed > 0 || len(shots) == 0 {
		t.Errorf("%d of %d requests failed", failed, len(shots))
	}
}

// shares counts the requests by worker.
func shares(shots []shot) map[string]int {
	out := map[string]int{}
	for _, s := range shots {
		out[s.worker]++
	}
	return out
}

// shadow lets a revision of the default policy decide on the side.
func (r *router) shadow(revision int, sample float64) {
	r.t.Helper()
	r.must("POST", "/v1/policies/default/shadow", map[string]any{"revision": revision, "sample": sample}, nil)
}

// canary lets a revision of the default policy decide for a share of the requests.
func (r *router) canary(revision int, percent float64) {
	r.t.Helper()
	r.must("POST", "/v1/policies/default/canary", map[string]any{"revision": revision, "percent": percent}, nil)
}

// promote makes what runs beside the active revision the active one.
func (r *router) promote(want int) {
	r.t.Helper()
	var got struct {
		Active int `json:"active"`
	}
	r.must("POST", "/v1/policies/default/promote", nil, &got)
	if got.Active != want {
		r.t.Fatalf("promote answered that %d is active, want %d", got.Active, want)
	}
}

// changes are the last n entries of the default policy's history, as "who what".
func (p *policyView) changes(n int) []string {
	var out []string
	for _, c := range p.History[max(0, len(p.History)-n):] {
		out = append(out, c.Who+" "+c.What)
	}
	return out
}
