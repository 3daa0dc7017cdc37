//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestQ7_LoadsOfAllRoutes(t *testing.T) {
	const each, workers = 100, 4
	var list []*desk
	for range workers {
		list = append(list, startDesk(t))
	}
	r := startRouter(t, untold+desks(1, "m", list...))
	c := newCrowd(t, r)
	var mu sync.Mutex
	var all []*pending
	together(2*each, func(i int) {
		text := fmt.Sprint(i, strings.Repeat(" long", 100))
		path, body := "/v1/completions", map[string]any{"model": "m", "prompt": text}
		if i%2 == 1 {
			path, body = "/v1/chat/completions", map[string]any{"model": "m", "messages": []map[string]string{{"role": "user", "content": text}}}
		}
		p := c.sendTo(t, path, body)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, p)
	})
	var ranks []rankView
	eventually(t, soon, func() error {
		total := 0
		ranks = r.standing("m").Ranks
		for _, v := range ranks {
			total += v.Load.Active
		}
		if total != 2*each {
			return fmt.Errorf("%d active requests, want %d", total, 2*each)
		}
		return nil
	})
	const mean = 2 * each / workers
	for _, v := range ranks {
		t.Logf("%s: %+v", v.Name, v.Load)
		if v.Load.Active < mean*8/10 || v.Load.Active > mean*12/10 {
			t.Errorf("%s has %d requests, want %d within 20 %%", v.Name, v.Load.Active, mean)
		}
	}
	for _, d := range list {
		d.open()
	}
	for _, p := range all {
		p.served(t)
	}
	r.quiet("m")
}

func TestR3_CallersThatLeaveWithinMilliseconds(t *testing.T) {
	const calls = 200
	list := []*desk{startDesk(t), startDesk(t)}
	r := startRouter(t, untold+desks(1, "m", list...))
	c := newCrowd(t, r)
	rnd := rand.New(rand.NewPCG(1, 2))
	stay := make([]time.Duration, calls)
	for i := range stay {
		// Every other call longer than the case says, so that most have been booked.
		stay[i] = time.Duration(rnd.Int64N(int64(5*time.Millisecond))) + time.Duration(i%2)*200*time.Millisecond
	}
	together(calls, func(i int) {
		ctx, cancel := context.WithTimeout(t.Context(), stay[i])
		defer cancel()
		header := []string{}
		if i%2 == 0 {
			header = []string{session, fmt.Sprint("s", i%8)}
		}
		if a, err := c.complete(ctx, "hello", header...); err == nil {
			t.Errorf("call %d was answered: %d %s", i, a.status, a.body)
		}
	})
	began := time.Now()
	r.idle("m", time.Second*patience)
	t.Logf("loads were 0 %s after the last caller had gone (stated: 1 s); %d requests had come to workers", time.Since(began), len(list[0].prompts())+len(list[1].prompts()))
	r.quiet("m")
	for _, d := range list {
		d.open()
	}
	for range 4 {
		c.served(t, "hello")
	}
}

func TestD3_RequestAfterAnAbortedStream(t *testing.T) {
	const rounds = 100
	d := startDesk(t)
	// A desk has no metrics, and being asked for them is a warning.
	r := startRouter(t, untold+desks(1, "m", d)+"  scrape: {interval: 0s}\n")
	c := newCrowd(t, r)
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := c.begin(ctx, "/v1/completions", map[string]any{"model": "m", "prompt": "long", "stream": true})
		if err != nil {
			t.Fatal(err)
		}
		events := bufio.NewScanner(resp.Body)
		for n := 0; n < 2 && events.Scan(); {
			if strings.HasPrefix(events.Text(), "data: ") {
				n++
			}
		}
		cancel()
		_ = resp.Body.Close()
		prompt := fmt.Sprint(atOnce, " round ", round)
		a, err := c.complete(t.Context(), prompt)
		if err != nil {
			t.Fatal(err)
		}
		if servedBy(t, a); !strings.Contains(string(a.body), fmt.Sprintf("%q", prompt)) {
			t.Fatalf("round %d was answered %s", round, a.body)
		}
	}
	r.quiet("m")
	m := r.metrics()
	if got := sum(m, "routerd_frontend_worker_failures_total"); got != 0 {
		t.Errorf("%v failures of the worker, want none", got)
	}
	if got := sum(m, "routerd_frontend_client_cancelled_total"); got != rounds {
		t.Errorf("%v requests were cancelled by clients, want %d", got, rounds)
	}
	if got := len(d.prompts()); got != 2*rounds {
		t.Errorf("%d requests came to the worker, want %d", got, 2*rounds)
	}
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "level=WARN") || strings.Contains(line, "parse") {
			t.Errorf("the log says %s", line)
		}
	}
}
