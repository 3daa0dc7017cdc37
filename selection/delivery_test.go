package selection_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/selection"
)

// tape keeps what went out whole, connection by connection.
type tape struct {
	net.Listener
	fail func(out []byte) bool // has a write fail that is about to be made; may be nil

	mu  sync.Mutex
	out []*bytes.Buffer
}

func (l *tape) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := &bytes.Buffer{}
	l.out = append(l.out, kept)
	return &taped{c.(*net.TCPConn), l, kept}, nil
}

type taped struct {
	*net.TCPConn
	tape *tape
	kept *bytes.Buffer
}

func (c *taped) Write(p []byte) (int, error) {
	if c.tape.fail != nil && c.tape.fail(p) {
		return 0, errors.New("a broken connection")
	}
	n, err := c.TCPConn.Write(p)
	c.tape.mu.Lock()
	defer c.tape.mu.Unlock()
	c.kept.Write(p[:n])
	return n, err
}

// accepted is how many connections there were.
func (l *tape) accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.out)
}

// told are the ids of the bookings of which an answer went out whole.
func (l *tape) told(t testing.TB) []string {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for _, out := range l.out {
		r := bufio.NewReader(bytes.NewReader(out.Bytes()))
		for {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				break
			}
			text, err := io.ReadAll(resp.Body)
			err = errors.Join(err, resp.Body.Close())
			// What only selects has no sequence hashes.
			booked := resp.StatusCode == 201 || resp.StatusCode == 200 && bytes.Contains(text, []byte("sequence_hashes"))
			if booked && err == nil {
				ids = append(ids, answer{body: text}.at(t, "selection_id"))
			}
		}
	}
	return ids
}

// check frees every booking that somebody was told of; nothing else may be left.
func (l *tape) check(t *testing.T, s *site) {
	t.Helper()
	told := l.told(t)
	live := s.core.Stats().Reservations
	t.Logf("%d answers went out whole, %d bookings live", len(told), live)
	if live > len(told) {
		t.Errorf("%d bookings live, of which %d answers tell", live, len(told))
	}
	freed := 0
	for _, id := range told {
		if a := s.do(t, "DELETE", "/reservations/"+id, ""); a.status == 200 {
			freed++
		}
	}
	if freed != live {
		t.Errorf("freed %d of %d", freed, live)
	}
	if active, prefill, decode := s.active(); active != 0 || prefill != 0 || decode != 0 || s.core.Stats().Reservations != 0 {
		t.Errorf("left: %d requests, %d tokens, %v blocks", active, prefill, decode)
	}
}

const aBooking = `{"token_ids":[1,2,3,4,5,6,7,8,9]}`

// hangUp has callers that all come at once and go within a time, with or without a reset.
func (s *site) hangUp(t *testing.T, rng *rand.Rand, calls int, within time.Duration, ask func(i int) string) {
	t.Helper()
	var all sync.WaitGroup
	for i := range calls {
		after, reset := time.Duration(rng.Int64N(int64(within))), rng.IntN(2) == 0
		all.Go(func() {
			c, err := net.Dial("tcp", s.addr)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = io.WriteString(c, ask(i))
			<-time.After(after)
			if reset {
				err = errors.Join(err, c.(*net.TCPConn).SetLinger(0))
			}
			if err = errors.Join(err, c.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestR3_ABookingOfACallerThatGoesIsReleasedUnlessItsAnswerWasWritten(t *testing.T) {
	const calls, within = 200, 5 * time.Millisecond
	w := two(t, options{})
	var l *tape
	s := newSite(t, w, siteOptions{listener: func(ln net.Listener) net.Listener { l = &tape{Listener: ln}; return l }})
	s.hangUp(t, rand.New(rand.NewPCG(1, 2)), calls, within, func(int) string { return request("POST", "/select_and_reserve", aBooking) })
	testkit.Until(t, "every call has come", func() bool { return l.accepted() == calls })
	testkit.Until(t, "every call has ended", func() bool { return s.gauge(t, "routerd_selection_service_connections") == 0 })
	l.check(t, s)
}

func TestR3_ABookingWhoseAnswerCannotBeWrittenIsReleased(t *testing.T) {
	w := two(t, options{})
	var l *tape
	broken := func(p []byte) bool { return bytes.Contains(p, []byte("selection_id")) }
	s := newSite(t, w, siteOptions{listener: func(ln net.Listener) net.Listener { l = &tape{Listener: ln, fail: broken}; return l }})
	for range 5 {
		if a := s.raw(t, request("POST", "/select_and_reserve", aBooking)); a.status != 0 {
			t.Errorf("got %d %s", a.status, a.body)
		}
	}
	testkit.Until(t, "the bookings are released", func() bool { return s.core.Stats().Reservations == 0 })
	l.check(t, s)
}

// A caller may send its next request before it has the answer to the first: each
// answer goes out at once, and what becomes of a later one is nothing to a booking.
func TestABookingAmongPipelinedRequestsIsKept(t *testing.T) {
	w := two(t, options{})
	var whole atomic.Bool
	broken := func(p []byte) bool { return !whole.Load() && bytes.Contains(p, []byte(`"ok"`)) }
	var l *tape
	s := newSite(t, w, siteOptions{listener: func(ln net.Listener) net.Listener { l = &tape{Listener: ln, fail: broken}; return l }})
	c := s.dial(t)
	book := request("POST", "/select_and_reserve", aBooking)
	if _, err := io.WriteString(c, book+book+book+request("GET", "/health", "")); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	var ids []string
	for range 3 {
		ids = append(ids, next(t, r, "POST").want(t, 200).at(t, "selection_id"))
	}
	if a := next(t, r, "GET"); a.status != 0 {
		t.Errorf("got %d %s", a.status, a.body)
	}
	testkit.Until(t, "the connection has ended", func() bool { return s.gauge(t, "routerd_selection_service_connections") == 0 })
	whole.Store(true)
	if told := l.told(t); !slices.Equal(told, ids) || s.core.Stats().Reservations != 3 {
		t.Errorf("got %v of %v, %d bookings live", told, ids, s.core.Stats().Reservations)
	}
	l.check(t, s)
}

func TestALargeAnswerOfABookingIsKept(t *testing.T) {
	w := two(t, options{})
	var l *tape
	s := newSite(t, w, siteOptions{listener: func(ln net.Listener) net.Listener { l = &tape{Listener: ln}; return l }})
	a := s.post(t, "/select_and_reserve", `{"token_ids":[`+strings.Repeat("7,", 20_000)+`7]}`).want(t, 200)
	if len(a.body) < 50_000 {
		t.Errorf("an answer of %d bytes", len(a.body))
	}
	s.do(t, "GET", "/health", "").want(t, 200)
	if live := s.core.Stats().Reservations; live != 1 {
		t.Errorf("%d bookings live", live)
	}
	l.check(t, s)
}

// queueing lets nobody start on a rank that has tokens to prefill.
func queueing(c *core.Config) {
	c.Queue.Classes[0].Busy.PrefillTokens = 1
}

// waiting is how many requests wait in the queue.
func (w *world) waiting() (n int) {
	for _, p := range w.core.Stats().Partitions {
		for _, q := range p.Queue {
			n += q.Requests
		}
	}
	return n
}

func TestACallerThatGoesWhileItWaitsLeavesTheQueue(t *testing.T) {
	for _, mode := range []string{"abort", "ignore"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, options{core: queueing})
			w.join(t, worker(1))
			s := newSite(t, w, siteOptions{config: func(c *selection.Config) { c.HalfClose = mode }})
			first := s.post(t, "/select_and_reserve", aBooking).want(t, 200).at(t, "selection_id")
			c := s.dial(t).(*net.TCPConn)
			if _, err := io.WriteString(c, request("POST", "/select_and_reserve", aBooking)); err != nil {
				t.Fatal(err)
			}
			testkit.Until(t, "it waits", func() bool { return w.waiting() == 1 })
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if mode == "ignore" { // it still waits for its answer
				s.post(t, "/reservations/"+first+"/prefill_complete", "").want(t, 200)
				id := next(t, bufio.NewReader(c), "POST").want(t, 200).at(t, "selection_id")
				s.do(t, "DELETE", "/reservations/"+id, "").want(t, 200)
			}
			testkit.Until(t, "it is gone", func() bool { return w.waiting() == 0 })
			s.do(t, "DELETE", "/reservations/"+first, "").want(t, 200)
			if active, _, _ := w.active(); active != 0 {
				t.Errorf("%d bookings left", active)
			}
		})
	}
}

// gauge is the value of a metric without labels.
func (s *site) gauge(t testing.TB, name string) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatal(fmt.Errorf("no metric %s", name))
	return 0
}

// late is a core that answers when its caller has gone.
type late struct{ selection.Core }

func (l late) Select(ctx context.Context, req *core.Request) (*core.Selection, error) {
	sel, err := l.Core.Select(context.WithoutCancel(ctx), req)
	<-ctx.Done()
	return sel, err
}

func TestABookingThatComesWhenTheCallerHasGoneIsReleased(t *testing.T) {
	w := two(t, options{})
	s := newSite(t, w, siteOptions{parts: func(p *selection.Parts) { p.Core = late{p.Core} }})
	c := s.dial(t)
	if _, err := io.WriteString(c, request("POST", "/select_and_reserve", aBooking)); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "it is booked", func() bool { return w.core.Stats().Reservations == 1 })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the call has ended", func() bool { return s.gauge(t, "routerd_selection_service_connections") == 0 })
	if live := w.core.Stats().Reservations; live != 0 || s.gauge(t, "routerd_selection_service_undelivered_total") != 1 {
		t.Errorf("%d bookings live", live)
	}
}
