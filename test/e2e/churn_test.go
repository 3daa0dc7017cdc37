//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// churn is clients that ask at random for a while, and what happens meanwhile.
type churn struct {
	seed    uint64
	lasts   time.Duration
	clients int
	ask     func(client int, rnd *rand.Rand) (outcome string)
	pause   time.Duration // most that a client waits when it was not served
	disturb func(rnd *rand.Rand)
	every   time.Duration // between two disturbances
}

// run returns how all requests ended, once they have.
func (c churn) run(t *testing.T) *outcomes {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), c.lasts)
	defer cancel()
	all := &outcomes{n: map[string]int{}}
	var wg sync.WaitGroup
	for i := range c.clients {
		rnd := rand.New(rand.NewPCG(c.seed, uint64(i)))
		wg.Go(func() {
			for ctx.Err() == nil {
				outcome := c.ask(i, rnd)
				all.count(outcome)
				if outcome != "served" { // it comes again a little later
					<-time.After(time.Duration(rnd.Int64N(int64(c.pause))))
				}
			}
		})
	}
	rnd := rand.New(rand.NewPCG(c.seed, uint64(c.clients)))
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		c.disturb(rnd)
		<-tick.C
	}
	wg.Wait()
	return all
}

// brokenOff is an answer that ends before its end.
const brokenOff = "broken off"

// outcome makes a request and tells how it ended. The client leaves one of so many early.
func (c *crowd) outcome(rnd *rand.Rand, oneOf int, path string, body map[string]any, header ...string) string {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rnd.IntN(oneOf) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rnd.IntN(60))*time.Millisecond)
		defer cancel()
	}
	a, err := c.ask(ctx, path, body, header...)
	switch {
	case ctx.Err() != nil:
		return "cancelled"
	case err != nil && a.status == http.StatusOK:
		return brokenOff
	case err != nil:
		// The client's library names addresses.
		text := err.Error()
		return "error " + text[strings.LastIndex(text, ": ")+2:]
	case a.status != http.StatusOK:
		return refusalOf(a)
	case body["stream"] == true && !bytes.HasSuffix(bytes.TrimSpace(a.body), []byte("data: [DONE]")):
		return brokenOff
	case a.header.Get("x-routerd-worker") == "":
		return "an answer that names no worker"
	}
	return "served"
}

// outcomes counts how requests ended. Safe for concurrent use.
type outcomes struct {
	mu sync.Mutex // guards n
	n  map[string]int
}

func (o *outcomes) count(outcome string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n[outcome]++
}

// expected is how the requests of a run may end.
type expected struct {
	served     []string
	oneOf      int      // one of so many requests is served at least
	left       []string // by the client
	documented []string // failures
	must       []string // what is there at least once
}

// verdict checks all outcomes of a run that has ended.
func (o *outcomes) verdict(t *testing.T, want expected) {
	t.Helper()
	inReference(t, want.documented)
	o.mu.Lock()
	defer o.mu.Unlock()
	total, served := 0, 0
	for _, outcome := range slices.Sorted(maps.Keys(o.n)) {
		n := o.n[outcome]
		total += n
		t.Logf("%6d %s", n, outcome)
		if slices.Contains(want.served, outcome) {
			served += n
		} else if !slices.Contains(want.left, outcome) && !slices.Contains(want.documented, outcome) {
			t.Errorf("%d requests ended with %s, which is not documented", n, outcome)
		}
	}
	if served < total/want.oneOf {
		t.Errorf("%d of %d requests were served, want one of %d", served, total, want.oneOf)
	}
	for _, must := range want.must {
		if o.n[must] == 0 {
			t.Errorf("no request ended with %s: the run shows too little", must)
		}
	}
}

// inReference checks that each failure that is allowed stands in the reference.
func inReference(t *testing.T, failures []string) {
	t.Helper()
	for _, failure := range failures {
		words := strings.Fields(failure)
		page, code := "../../docs/reference/http.md", words[1]
		if words[0] == "select" || words[0] == "free" {
			page, code = "../../docs/reference/selection-api.md", words[2]
		}
		if strings.HasPrefix(code, "engine_") || failure == brokenOff {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("`"+code+"`")) {
			t.Errorf("%s does not tell of %s", page, failure)
		}
	}
}

// rest is what a router has while nothing is under way.
type rest struct {
	goroutines  float64
	descriptors float64 // without those of connections to workers
	series      map[string]float64
}

func (r *router) rest() rest {
	r.t.Helper()
	m := r.metrics()
	return rest{m["go_goroutines"], m["process_open_fds"] - sum(m, "routerd_upstream_connections"), m}
}

// restsAgain waits until the router has no more than before, and no connection to a
// worker that is in use.
func (r *router) restsAgain(before rest) (after rest) {
	r.t.Helper()
	eventually(r.t, time.Minute, func() error {
		after = r.rest()
		if open, idle := sum(after.series, "routerd_upstream_connections"), sum(after.series, "routerd_upstream_idle_connections"); open != idle {
			return fmt.Errorf("%v connections to workers, %v of them idle", open, idle)
		}
		if after.goroutines > before.goroutines+10 || after.descriptors > before.descriptors+10 {
			return fmt.Errorf("%v goroutines and %v descriptors, want %v and %v as before, 10 more at most",
				after.goroutines, after.descriptors, before.goroutines, before.descriptors)
		}
		return nil
	})
	r.t.Logf("goroutines %v before and %v after, descriptors %v and %v", before.goroutines, after.goroutines, before.descriptors, after.descriptors)
	return after
}

// saidNothingBad checks the log for errors and panics.
func (r *router) saidNothingBad() {
	r.t.Helper()
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, "panic") || strings.Contains(line, "level=ERROR") {
			r.t.Errorf("the log says %s", line)
		}
	}
}
