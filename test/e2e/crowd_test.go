//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// soon bounds what is to happen without delay, on a crowded machine too.
const soon = 10 * time.Second

// crowd is many clients of a router. Safe for concurrent use.
type crowd struct {
	r      *router
	client *http.Client
}

func newCrowd(t *testing.T, r *router) *crowd {
	t.Helper()
	c := &crowd{r: r, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}, Timeout: 2 * time.Minute}}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// begin sends a request to the frontend and returns as soon as the answer
// begins. header are names and values in turn.
func (c *crowd) begin(ctx context.Context, path string, body any, header ...string) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.r.frontend+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return c.client.Do(req)
}

// ask is begin, with the whole answer.
func (c *crowd) ask(ctx context.Context, path string, body any, header ...string) (reply, error) {
	resp, err := c.begin(ctx, path, body, header...)
	if err != nil {
		return reply{}, err
	}
	answer, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, answer}, errors.Join(err, resp.Body.Close())
}

// complete asks model m to complete a prompt.
func (c *crowd) complete(ctx context.Context, prompt any, header ...string) (reply, error) {
	return c.ask(ctx, "/v1/completions", map[string]any{"model": "m", "prompt": prompt, "max_tokens": 4}, header...)
}

// pending is a request under way.
type pending struct {
	leave context.CancelFunc
	done  chan struct{}
	reply reply // once done is closed
	err   error
	took  time.Duration
}

// send asks for a completion of model m on a goroutine of its own.
func (c *crowd) send(t *testing.T, prompt any, header ...string) *pending {
	t.Helper()
	return c.sendTo(t, "/v1/completions", map[string]any{"model": "m", "prompt": prompt, "max_tokens": 4}, header...)
}

func (c *crowd) sendTo(t *testing.T, path string, body any, header ...string) *pending {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	p := &pending{leave: leave, done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(p.done)
		p.reply, p.err = c.ask(ctx, path, body, header...)
		p.took = time.Since(began)
	}()
	t.Cleanup(func() {
		leave()
		<-p.done
	})
	return p
}

// answer waits for the end of the request, which must have been answered.
func (p *pending) answer(t *testing.T) reply {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		t.Fatal("no answer within a minute")
	}
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.reply
}

// served waits for a 200 and returns the worker's name.
func (p *pending) served(t *testing.T) string {
	t.Helper()
	return servedBy(t, p.answer(t))
}

// gone cancels the request and waits for its end.
func (p *pending) gone() {
	p.leave()
	<-p.done
}

// servedBy checks that an answer is a worker's 200 and returns the worker's name.
func servedBy(t *testing.T, a reply) string {
	t.Helper()
	if a.status != http.StatusOK {
		t.Fatalf("status %d, want 200: %s", a.status, a.body)
	}
	return a.header.Get("x-routerd-worker")
}

// served asks model m, as one of a session or of none, and returns the worker.
func (c *crowd) served(t *testing.T, prompt any, header ...string) string {
	t.Helper()
	a, err := c.complete(t.Context(), prompt, header...)
	if err != nil {
		t.Fatal(err)
	}
	return servedBy(t, a)
}

// refused checks that an answer is an error of the router with this status, code
// and param, and that one that says when to come again does so.
func refused(t *testing.T, what string, a reply, status int, code, param string) {
	t.Helper()
	e := routerError(t, what, a)
	if a.status != status || e.Code != code || e.Param != param {
		t.Errorf("%s: got %d %q %q, want %d %q %q: %s", what, a.status, e.Code, e.Param, status, code, param, a.body)
	}
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return
	}
	if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after < 1 {
		t.Errorf("%s: Retry-After %q, want a whole number of at least 1", what, a.header.Get("Retry-After"))
	}
}

// standing is what the tests read of a partition beside its ranks.
type standing struct {
	Queue []struct {
		Class    string `json:"class"`
		Requests int    `json:"requests"`
		Tokens   int    `json:"tokens"`
	} `json:"queue"`
	Sessions struct {
		Bound        int `json:"bound"`
		Initialising int `json:"initialising"`
		Leases       int `json:"leases"`
	} `json:"sessions"`
	Ranks []rankView `json:"ranks"`
}

func (r *router) standing(model string) standing {
	r.t.Helper()
	var got struct {
		Partitions []standing `json:"partitions"`
	}
	r.must("GET", "/v1/partitions?model="+model, nil, &got)
	if len(got.Partitions) != 1 {
		r.t.Fatalf("%d partitions of model %s, want 1", len(got.Partitions), model)
	}
	return got.Partitions[0]
}

// waiting are the requests and their tokens in a partition's queue.
func (s standing) waiting() (requests, tokens int) {
	for _, c := range s.Queue {
		requests += c.Requests
		tokens += c.Tokens
	}
	return requests, tokens
}

// waits waits until so many requests stand in the queue of model m.
func (r *router) waits(requests int, within time.Duration) {
	r.t.Helper()
	eventually(r.t, within, func() error {
		if got, _ := r.standing("m").waiting(); got != requests {
			return fmt.Errorf("%d requests wait, want %d", got, requests)
		}
		return nil
	})
}

// bound waits until so many sessions of a model are bound.
func (r *router) bound(model string, sessions int, within time.Duration) {
	r.t.Helper()
	eventually(r.t, within, func() error {
		if got := r.standing(model).Sessions; got.Bound != sessions || got.Initialising != 0 {
			return fmt.Errorf("%s: %+v, want %d bound", model, got, sessions)
		}
		return nil
	})
}

// quiet waits until nothing is under way: no load, nobody waits, no reservation
// and no lease.
func (r *router) quiet(models ...string) {
	r.t.Helper()
	for _, model := range models {
		r.idle(model, soon)
		eventually(r.t, soon, func() error {
			s := r.standing(model)
			if requests, tokens := s.waiting(); requests+tokens+s.Sessions.Leases+s.Sessions.Initialising != 0 {
				return fmt.Errorf("%s: %d requests of %d tokens wait, sessions %+v", model, requests, tokens, s.Sessions)
			}
			return nil
		})
	}
	eventually(r.t, soon, func() error {
		m := r.metrics()
		for _, name := range []string{"routerd_selection_reservations", "routerd_selection_pending", "routerd_queue_requests", "routerd_queue_tokens", "routerd_affinity_leases", "routerd_frontend_in_flight"} {
			if got := sum(m, name); got != 0 {
				return fmt.Errorf("%s is %v", name, got)
			}
		}
		return nil
	})
}

// together runs n calls at the same moment and waits for them.
func together(n int, call func(i int)) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			call(i)
		})
	}
	close(start)
	wg.Wait()
}

// prefersLowest makes the policy prefer the worker with the lowest id, loads or
// not.
func (r *router) prefersLowest() {
	r.t.Helper()
	r.activate(r.revise("lowest", byID("lowest", false)))
}
