//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// selecting is a call under way.
type selecting struct {
	leave context.CancelFunc
	done  chan struct{}
	reply reply // once done is closed
	err   error
}

// selects makes a call of /select_and_reserve on a goroutine of its own.
func (s *service) selects(t *testing.T, id string, header ...string) *selecting {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	c := &selecting{leave: leave, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.reply, c.err = s.try(ctx, "POST", "/select_and_reserve", wants(tokens(1, 16), "selection_id", id), header...)
	}()
	t.Cleanup(func() {
		leave()
		<-c.done
	})
	return c
}

// pending waits until so many selections of model m wait.
func (s *service) pending(t *testing.T, n int, within time.Duration) {
	t.Helper()
	eventually(t, within, func() error {
		if _, got := s.loads(t); got != n {
			return fmt.Errorf("%d selections wait, want %d", got, n)
		}
		return nil
	})
}

func TestACallerOfTheServiceLeavesTheQueue(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "unix"} {
		t.Run(address, func(t *testing.T) {
			if address == "unix" {
				address = "unix:" + filepath.Join(socketFolder(t), "s")
			}
			s := startServiceAt(t, address, untold+desks(1, "m", startDesk(t))+fmt.Sprintf(oneAtATime, 256, "1m"))
			s.books(t, wants(tokens(1, 16), "selection_id", "first"))
			leaves, stays := s.selects(t, "leaves"), s.selects(t, "stays")
			s.pending(t, 2, soon)
			leaves.leave()
			began := time.Now()
			s.pending(t, 1, 100*time.Millisecond*patience)
			t.Logf("it had left the queue after %s (stated: 100 ms)", time.Since(began))
			s.frees(t, "first")
			<-stays.done
			if stays.err != nil || stays.reply.status != http.StatusOK {
				t.Errorf("who stayed got %d %v: %s", stays.reply.status, stays.err, stays.reply.body)
			}
			s.says(t, http.StatusNotFound, "DELETE", "/reservations/leaves", nil)
			s.frees(t, "stays")
			if got := sum(s.metrics(), "routerd_selection_service_requests_total", `"499"`); got != 1 {
				t.Errorf("%v callers are counted as gone, want 1", got)
			}
			s.quiet("m")
			s.unused(t)
		})
	}
}

// socketFolder has a short path: that of a socket may have 107 bytes.
func socketFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "routerd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A surface that is busy with completions has selections wait behind them, and the
// other way round: there is one queue.
func TestBothSurfacesWaitInOneQueue(t *testing.T) {
	d := startDesk(t)
	s := startService(t, untold+desks(1, "m", d)+fmt.Sprintf(oneAtATime, 2, "1m"))
	c := newCrowd(t, s.router)
	running := c.send(t, "first")
	d.arrived(t, 1)
	second := s.selects(t, "second")
	s.pending(t, 1, soon)
	third := c.send(t, "third")
	s.pending(t, 2, soon)

	full := s.says(t, http.StatusTooManyRequests, "POST", "/select", wants(tokens(1, 16)))
	if refusesWith(t, full, http.StatusTooManyRequests); full.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	d.let(1)
	running.served(t)
	if <-second.done; second.err != nil || second.reply.status != http.StatusOK {
		t.Fatalf("the second got %d %v: %s", second.reply.status, second.err, second.reply.body)
	}
	if got := d.prompts(); len(got) != 1 {
		t.Errorf("the worker got %v while the second is booked, want the first alone", got)
	}
	d.open()
	s.frees(t, "second")
	third.served(t)
	s.quiet("m")
}

// Every route that the service's own description lists wants the token, but for
// /health; a call without it does nothing.
func TestTheServiceWantsItsToken(t *testing.T) {
	const token = "a-token-of-the-data-plane"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startService(t, untold+desks(1, "m", startDesk(t))+fmt.Sprintf("selection: {token_file: %q}\n", file))
	bare := newService(t, s.router, s.at)
	s.bearer = token
	api := read[struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}](t, s.says(t, http.StatusOK, "GET", "/openapi.json", nil))
	if len(api.Paths) < 15 {
		t.Fatalf("the description lists %d paths, want at least 15", len(api.Paths))
	}
	for path, methods := range api.Paths {
		for method := range methods {
			method, at := strings.ToUpper(method), strings.ReplaceAll(path, "{id}", "1")
			if path == "/health" {
				bare.says(t, http.StatusOK, method, at, nil)
				continue
			}
			for _, authorization := range []string{"", "Bearer", "Bearer wrong", "Bearer " + token[1:], "Basic " + token, token, "Bearer " + s.token} {
				var header []string
				if authorization != "" {
					header = []string{"Authorization", authorization}
				}
				a := bare.says(t, http.StatusUnauthorized, method, at, wants(tokens(1, 16)), header...)
				if code, _ := refusesWith(t, a, http.StatusUnauthorized); code != "unauthorized" || strings.Contains(string(a.body), token) {
					t.Errorf("%s %s: %s", method, at, a.body)
				}
			}
		}
	}
	bare.says(t, http.StatusUnauthorized, "GET", "/nothing", nil)
	s.unused(t)
	s.frees(t, s.books(t, wants(tokens(1, 16))).ID)
	if strings.Contains(s.log.String(), token) {
		t.Error("the log holds the token")
	}
}

// At SIGTERM those that wait are told within the grace of running calls, and the
// router ends in time.
func TestSelectionsThatWaitAreRefusedAtTheEnd(t *testing.T) {
	const waiting = 20
	s := startService(t, untold+desks(1, "m", startDesk(t))+fmt.Sprintf(oneAtATime, 256, "1m"))
	s.books(t, wants(tokens(1, 16), "selection_id", "first"))
	var calls []*selecting
	for i := range waiting {
		calls = append(calls, s.selects(t, fmt.Sprint("w", i)))
	}
	s.pending(t, waiting, soon)
	began := time.Now()
	var told sync.WaitGroup
	told.Go(func() {
		for _, c := range calls {
			<-c.done
		}
		t.Logf("all were told after %s", time.Since(began))
	})
	s.stop()
	took := time.Since(began)
	told.Wait()
	for i, c := range calls {
		if c.err != nil {
			t.Errorf("call %d: %v", i, c.err)
			continue
		}
		refusesWith(t, c.reply, http.StatusServiceUnavailable)
	}
	t.Logf("the router ended after %s", took)
	if took > stopWithin {
		t.Errorf("it ended after %s, want at most %s", took, stopWithin)
	}
}
