package frontend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
)

// admitting lets a rank have so many requests at once; more than most a worker
// are refused.
func admitting(requests, most int64, timeout time.Duration) func(*setup) {
	return func(s *setup) {
		c := &s.core.Queue.Classes[0]
		c.Busy.ActiveRequests, c.Limits.Requests, c.Timeout = requests, most, timeout
	}
}

// holding is a worker that answers each request when it is told to.
func holding(t testing.TB) (*worker, chan struct{}) {
	free, over := make(chan struct{}), make(chan struct{})
	wk := serve(t, func(p *peer) {
		for {
			r, ok := p.next()
			if !ok {
				return
			}
			select {
			case <-free:
				p.say(plain(string(r.body)))
			case <-over:
				return
			}
		}
	})
	t.Cleanup(func() { close(over) })
	return wk, free
}

// waits is the number of requests that are with the core and have no booking.
func (w *world) waits(t testing.TB) int {
	return int(w.metric(t, "routerd_frontend_in_flight")) - w.core.Reservations()
}

// ask sends a chat in the background.
func (w *world) ask(ctx context.Context, t testing.TB, headers ...string) chan answer {
	ch := make(chan answer, 1)
	c := client(t)
	go func() {
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+w.addr+chatPath, strings.NewReader(chatBody))
		if err != nil {
			t.Error(err)
			return
		}
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Add(headers[i], headers[i+1])
		}
		resp, err := c.Do(req)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			close(ch)
			return
		}
		defer resp.Body.Close()
		ch <- read(resp)
	}()
	return ch
}

// checkRetryAfter asserts whole seconds, at least one.
func checkRetryAfter(t *testing.T, got answer) {
	t.Helper()
	if n, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || n < 1 {
		t.Errorf("Retry-After %q, want a whole number from 1", got.header.Get("Retry-After"))
	}
}

// checkParam asserts what an error says beside its code.
func checkParam(t *testing.T, got answer, want string) {
	t.Helper()
	var e struct {
		Error struct{ Param string }
	}
	if err := json.Unmarshal([]byte(got.body), &e); err != nil || e.Error.Param != want {
		t.Errorf("got %s, want the parameter %q", got.body, want)
	}
}

func TestD2_AClientThatLeavesTheQueueIsGoneAndItsRequestIsNeverSent(t *testing.T) {
	w := start(t, admitting(1, queue.Unlimited, time.Minute))
	wk, free := holding(t)
	w.join(t, "w1", wk.url)
	first := w.ask(t.Context(), t)
	eventually(t, "the first request at the worker", func() bool { return wk.seen.Load() == 1 })
	ctx, leave := context.WithCancel(t.Context())
	second := w.ask(ctx, t)
	eventually(t, "a request in the queue", func() bool { return w.waits(t) == 1 })
	leave()
	begun := time.Now()
	eventually(t, "an empty queue", func() bool { return w.waits(t) == 0 })
	if took := time.Since(begun); took > time.Second {
		t.Errorf("took %v to leave", took)
	}
	<-second
	free <- struct{}{}
	if got := wait(t, "the first answer", first); got.status != http.StatusOK {
		t.Errorf("got %+v", got)
	}
	third := w.ask(t.Context(), t)
	free <- struct{}{}
	if got := wait(t, "the third answer", third); got.status != http.StatusOK {
		t.Errorf("got %+v", got)
	}
	if n := wk.seen.Load(); n != 2 {
		t.Errorf("the worker saw %d requests, want the first and the third", n)
	}
	eventually(t, "release of all bookings", func() bool { return w.active("") == 0 && w.core.Reservations() == 0 })
}

func TestU1_AFullQueueIs429AndAnEmptyPool503(t *testing.T) {
	w := start(t, admitting(1, 10, time.Minute))
	wk, free := holding(t)
	w.join(t, "w1", wk.url)
	first := w.ask(t.Context(), t)
	eventually(t, "a request at the worker", func() bool { return wk.seen.Load() == 1 })
	queued := make(chan answer, 11)
	for range 11 {
		ch := w.ask(t.Context(), t)
		go func() { queued <- <-ch }()
	}
	got := wait(t, "the answer of the one too many", queued)
	checkError(t, got, http.StatusTooManyRequests, "overloaded")
	checkParam(t, got, "queue_full")
	checkRetryAfter(t, got)
	eventually(t, "ten requests in the queue", func() bool { return w.waits(t) == 10 })
	free <- struct{}{}
	if got := wait(t, "the first answer", first); got.status != http.StatusOK {
		t.Errorf("got %+v", got)
	}
	eventually(t, "the next request at the worker", func() bool { return wk.seen.Load() == 2 })
	if err := w.core.Commit(core.Change{Removals: []fleet.WorkerID{fleet.IDFromName("w1")}}); err != nil {
		t.Fatal(err)
	}
	got = w.chat(t)
	checkError(t, got, http.StatusServiceUnavailable, "no_workers")
	checkRetryAfter(t, got)
	free <- struct{}{} // its worker has left, its answer is still good
	ends := map[int]int{}
	for range 10 {
		ends[wait(t, "the answer of one that waited", queued).status]++
	}
	if diff := cmp.Diff(map[int]int{200: 1, 503: 9}, ends); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestU3_AtItsTimeLimitARequestIsServedOrRefusedNeverBoth(t *testing.T) {
	const limit, rounds = 25 * time.Millisecond, 40
	w := start(t, admitting(1, queue.Unlimited, limit))
	wk, free := holding(t)
	w.join(t, "w1", wk.url)
	var served, refused int64
	for range rounds {
		first := w.ask(t.Context(), t)
		eventually(t, "a request at the worker", func() bool { return w.active("w1") == 1 && wk.seen.Load() == served+1 })
		served++
		begun := time.Now()
		second := w.ask(t.Context(), t)
		<-time.After(limit - time.Since(begun) + time.Duration(rand.IntN(4)-2)*time.Millisecond)
		free <- struct{}{}
		if got := wait(t, "the first answer", first); got.status != http.StatusOK {
			t.Fatalf("got %+v", got)
		}
		select {
		case free <- struct{}{}:
			served++
			if got := wait(t, "the answer", second); got.status != http.StatusOK {
				t.Errorf("got %+v for a request that the worker has served", got)
			}
		case got := <-second:
			refused++
			checkError(t, got, http.StatusTooManyRequests, "overloaded")
			checkParam(t, got, "queue_timeout")
			checkRetryAfter(t, got)
			if took := time.Since(begun); took < limit {
				t.Errorf("refused after %v, the limit is %v", took, limit)
			}
		}
		eventually(t, "release", func() bool { return w.active("") == 0 && w.waits(t) == 0 })
	}
	t.Logf("%d served, %d refused", served, refused)
	if n := wk.seen.Load(); n != served || served+refused != 2*rounds {
		t.Errorf("the worker saw %d requests; %d were served and %d refused of %d", n, served, refused, 2*rounds)
	}
}

func TestR3_RequestsThatAreCancelledAtAnyMomentLeaveNothing(t *testing.T) {
	w := start(t, admitting(4, queue.Unlimited, time.Minute), sticky)
	w.engines(t, 2)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(5000))*time.Microsecond)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "POST", "http://"+w.addr+chatPath, strings.NewReader(chatBody))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("X-Routerd-Session", fmt.Sprint("s", i%20))
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			resp, err := tr.RoundTrip(req)
			if err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				return
			}
			resp.Body.Close()
		})
	}
	all.Wait()
	begun := time.Now()
	eventually(t, "nothing left", func() bool { return w.active("") == 0 && w.waits(t) == 0 && w.core.Reservations() == 0 })
	if took := time.Since(begun); took > time.Second {
		t.Errorf("took %v", took)
	}
	for i := range 20 { // and no session hangs in the hands of one that has gone
		served(t, w.chat(t, "x-routerd-session", fmt.Sprint("s", i)))
	}
}

func TestD3_AbortedStreamsOfASessionGiveTheirPlaceToTheNextRequest(t *testing.T) {
	w := start(t, admitting(1, queue.Unlimited, time.Minute), sticky)
	w.engines(t, 1)
	c := client(t)
	for i := range 100 {
		w.abort(t, "x-routerd-session", "s")
		prompt := strings.Repeat("word ", i%7+1)
		a, err := w.try(t, c, "POST", textPath, fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":3}`, prompt), "x-routerd-session", "s")
		if err != nil {
			t.Fatal(err)
		}
		served(t, a)
		var got struct {
			Object string
			Usage  struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || got.Object != "text_completion" || got.Usage.Prompt != 2*(i%7+1) || got.Usage.Completion != 3 {
			t.Fatalf("round %d: got %v %s", i, err, a.body)
		}
	}
	eventually(t, "release", func() bool { return w.active("") == 0 })
	if k := w.released.kinds(); k["completed"] != 100 || k["cancelled"] != 100 {
		t.Errorf("bookings ended as %v", k)
	}
	if s := w.log.String(); strings.Contains(s, "level=ERROR") || strings.Contains(s, "broke off") {
		t.Errorf("log: %s", s)
	}
}
