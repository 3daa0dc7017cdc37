//go:build e2e

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestR2_FreedTwiceAndReservedAgainByHTTP(t *testing.T) {
	s := startService(t, untold+desks(1, "m", startDesk(t)))
	for i, c := range []struct {
		method string
		status int
		loads  int
	}{
		{"POST", http.StatusOK, 1},
		{"DELETE", http.StatusOK, 0},
		{"DELETE", http.StatusNotFound, 0},
		{"POST", http.StatusOK, 1},
		{"DELETE", http.StatusOK, 0},
	} {
		if c.method == "POST" {
			s.says(t, c.status, c.method, "/select_and_reserve", wants(tokens(1, 64), "selection_id", "r1"))
		} else {
			s.says(t, c.status, c.method, "/reservations/r1", nil)
		}
		if got := s.active(t); got != c.loads {
			t.Errorf("call %d: %d bookings, want %d", i, got, c.loads)
		}
	}
	s.quiet("m")
	s.unused(t)
}

// drops sends a booking over a connection of its own and closes that within 5 ms,
// the answer unread; every other time with a reset.
func drops(t *testing.T, s *service, i int, stay time.Duration) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.at, "http://"))
	if err != nil {
		t.Error(err)
		return
	}
	body := bodyOf(t, wants(tokens(1, 64), "selection_id", fmt.Sprint("r", i), "session_id", fmt.Sprint("s", i%8)))
	say(c, fmt.Sprintf("POST /select_and_reserve HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	<-time.After(stay)
	if tcp, ok := c.(*net.TCPConn); ok && i%2 == 0 {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// Callers close their connections within milliseconds. An answer that was written
// lives until it is freed; nothing else stays.
func TestR3_CallersOfTheServiceThatCloseWithinMilliseconds(t *testing.T) {
	const calls = 200
	rnd := rand.New(rand.NewPCG(3, 3))
	stays := make([]time.Duration, calls)
	for i := range stays {
		stays[i] = time.Duration(rnd.Int64N(int64(5 * time.Millisecond)))
	}
	for _, c := range []struct {
		name, config string
		wait         bool
	}{
		{"while workers are free", "", false},
		{"while they wait in the queue", fmt.Sprintf(oneAtATime, 1000, "1m"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startService(t, untold+desks(1, "m", startDesk(t))+c.config)
			if c.wait {
				s.books(t, wants(tokens(1, 16), "selection_id", "first"))
			}
			together(calls, func(i int) { drops(t, s, i, stays[i]) })
			began := time.Now()
			eventually(t, time.Second*patience, func() error {
				m := s.metrics()
				if waiting, open := sum(m, "routerd_queue_requests"), sum(m, "routerd_selection_service_connections"); waiting != 0 || open > 2 {
					return fmt.Errorf("%v wait, %v connections are open", waiting, open)
				}
				return nil
			})
			t.Logf("nobody waited %s after the last caller had gone (stated: 1 s)", time.Since(began))
			if c.wait {
				s.frees(t, "first")
			}
			booked, live := s.active(t), 0
			for i := range calls {
				a, err := s.try(t.Context(), "DELETE", fmt.Sprint("/reservations/r", i), nil)
				if err != nil || a.status != http.StatusOK && a.status != http.StatusNotFound {
					t.Fatalf("free r%d: %d %v %s", i, a.status, err, a.body)
				}
				if a.status == http.StatusOK {
					live++
				}
			}
			m := s.metrics()
			answered := int(sum(m, "routerd_selection_service_requests_total", "/select_and_reserve", `"200"`))
			t.Logf("%d were answered, %d bookings lived, %v were released since their caller had gone", answered, live, sum(m, "routerd_selection_service_undelivered_total"))
			if live != booked || live > answered || c.wait && live != 0 {
				t.Errorf("%d bookings counted as load and %d were there, of %d that were answered", booked, live, answered)
			}
			s.quiet("m")
			s.unused(t)
		})
	}
}

func TestR6_LifecycleCallsByHTTP(t *testing.T) {
	s := startService(t, untold+desks(1, "m", startDesk(t)))
	prefill := func(status int) { t.Helper(); s.says(t, status, "POST", "/reservations/r1/prefill_complete", nil) }
	output := func(status int, body string) {
		t.Helper()
		s.says(t, status, "POST", "/reservations/r1/output_block", []byte(body))
	}
	load := func(prefill, decode, active int) {
		t.Helper()
		ranks, _ := s.loads(t)
		if want := (slotLoad{Worker: 1, Prefill: prefill, Decode: decode, Active: active}); len(ranks) != 1 || ranks[0] != want {
			t.Errorf("loads %+v, want %+v", ranks, want)
		}
	}
	prefill(http.StatusNotFound)
	output(http.StatusNotFound, `{}`)
	s.books(t, wants(tokens(1, 64), "selection_id", "r1"))
	load(64, 4, 1)
	prefill(http.StatusOK)
	load(0, 4, 1)
	prefill(http.StatusOK)
	load(0, 4, 1)
	for _, bad := range []string{"1.5", "NaN", "-1"} {
		output(http.StatusBadRequest, `{"decay_fraction":`+bad+`}`)
	}
	load(0, 4, 1)
	output(http.StatusOK, `{}`)
	load(0, 5, 1)
	s.frees(t, "r1")
	prefill(http.StatusNotFound)
	output(http.StatusNotFound, `{}`)
	load(0, 0, 0)
	s.quiet("m")
}

func TestQ9_PinsAndAllowSetsByHTTP(t *testing.T) {
	s := startService(t, untold+desks(1, "m", startDesk(t), startDesk(t))+"queue: {overload: {prefill_tokens: 100}}\n")
	s.says(t, http.StatusCreated, "POST", "/workers", map[string]any{"worker_id": 3, "model_name": "m", "block_size": 16})
	s.books(t, wants(tokens(1, 160), "selection_id", "first", "pinned_worker", map[string]any{"worker_id": 1, "dp_rank": 0}))
	pin := func(id int) map[string]any { return map[string]any{"worker_id": id, "dp_rank": 0} }
	for _, c := range []struct {
		name   string
		more   []any
		status int
	}{
		{"a pin on the overloaded worker", []any{"pinned_worker", pin(1)}, http.StatusTooManyRequests},
		{"a pin on no worker", []any{"pinned_worker", pin(9)}, http.StatusNotFound},
		{"a worker alone that is not ready", []any{"allowed_worker_ids", []int{3}}, http.StatusServiceUnavailable},
		{"a pin outside the allow-set", []any{"pinned_worker", pin(1), "allowed_worker_ids", []int{2}}, http.StatusBadRequest},
		{"no worker at all is allowed", []any{"allowed_worker_ids", []int{}}, http.StatusServiceUnavailable},
	} {
		for _, path := range []string{"/select", "/select_and_reserve"} {
			a, err := s.try(t.Context(), "POST", path, wants(tokens(1, 16), c.more...))
			if err != nil {
				t.Fatal(err)
			}
			code, message := refusesWith(t, a, c.status)
			t.Logf("%s, %s: %s: %s", path, c.name, code, message)
		}
	}
	if got := s.active(t); got != 1 {
		t.Errorf("%d bookings, want only the first", got)
	}
	if got := s.books(t, wants(tokens(1, 16), "selection_id", "second")); got.Worker != 2 {
		t.Errorf("without a wish worker %d was selected, want 2", got.Worker)
	}
	s.frees(t, "first")
	s.frees(t, "second")
	s.quiet("m")
}

// The 64 ids of a prompt are the same blocks at both surfaces: where both are under
// way on one rank the blocks count once.
func TestB2_ThePromptOfACompletionHasTheBlocksOfASelection(t *testing.T) {
	d := startDesk(t)
	s := startService(t, untold+desks(1, "m", d))
	c := newCrowd(t, s.router)
	decode := func() int { t.Helper(); ranks, _ := s.loads(t); return ranks[0].Decode }

	running := c.send(t, tokens(1, 64))
	d.arrived(t, 1)
	if got := decode(); got != 4 {
		t.Fatalf("a completion of 64 ids holds %d blocks, want 4", got)
	}
	same := s.books(t, wants(tokens(1, 64)))
	if got := decode(); got != 4 || len(same.Sequences) != 4 {
		t.Errorf("with the same ids selected %d blocks are held, want 4; the answer has %d", got, len(same.Sequences))
	}
	// The last of four blocks differs in one id.
	other := tokens(1, 64)
	other[63] = 7
	differs := s.books(t, wants(other))
	if got := decode(); got != 5 {
		t.Errorf("with another last block selected %d blocks are held, want 5", got)
	}
	for i, h := range differs.Sequences {
		if equal := h == same.Sequences[i]; equal != (i < 3) {
			t.Errorf("block %d: equal is %t", i, equal)
		}
	}
	d.open()
	running.served(t)
	s.frees(t, same.ID)
	s.frees(t, differs.ID)
	s.quiet("m")
	s.unused(t)
}
