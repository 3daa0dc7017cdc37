package frontend_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/frontend"
)

// reports notes what the core is told of workers.
type reports struct {
	*core.SelectionCore
	mu    sync.Mutex
	heard []string
}

func (r *reports) note(id fleet.WorkerID, format string, args ...any) {
	name := "?"
	for _, n := range []string{"w1", "w2"} {
		if fleet.IDFromName(n) == id {
			name = n
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, name+" "+fmt.Sprintf(format, args...))
}

func (r *reports) Inhibit(id fleet.WorkerID) {
	r.note(id, "unreached")
	r.SelectionCore.Inhibit(id)
}

func (r *reports) Reached(id fleet.WorkerID) {
	r.note(id, "well")
	r.SelectionCore.Reached(id)
}

func (r *reports) Refused(id fleet.WorkerID, retryAfter time.Duration) {
	r.note(id, "refuses for %v", retryAfter)
	r.SelectionCore.Refused(id, retryAfter)
}

func (r *reports) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	heard := r.heard
	r.heard = nil
	return heard
}

// reported starts a frontend whose reports to the core are noted.
func reported(t *testing.T) (*world, *reports) {
	r := &reports{}
	w := start(t, func(s *setup) {
		s.selector = func(c *core.SelectionCore) frontend.Selector {
			r.SelectionCore = c
			return r
		}
	})
	return w, r
}

func TestAWorkersBackPressureIsReportedAndPasses(t *testing.T) {
	const refuses = "HTTP/1.1 %d Whatever\r\nContent-Type: text/plain\r\n%sContent-Length: 2\r\n\r\nno"
	past := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		name, header string
		status       int
		want         string
	}{
		{"429 without a time", "", 429, "w1 refuses for 0s"},
		{"503 with one", "Retry-After: 7\r\n", 503, "w1 refuses for 7s"},
		{"none at all", "Retry-After: 0\r\n", 429, "w1 refuses for 0s"},
		{"absurdly long", "Retry-After: 99999999999999\r\n", 429, "w1 refuses for 1h0m0s"},
		{"not a number", "Retry-After: soon\r\n", 429, "w1 refuses for 0s"},
		{"negative", "Retry-After: -5\r\n", 429, "w1 refuses for 0s"},
		{"date of the past", "Retry-After: " + past + "\r\n", 429, "w1 refuses for 0s"},
		{"date far ahead", "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n", 503, "w1 refuses for 1h0m0s"},
		{"the request's own fault", "Retry-After: 7\r\n", 400, "w1 well"},
		{"another failure", "Retry-After: 7\r\n", 500, "w1 well"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, r := reported(t)
			w.join(t, "w1", answering(t, fmt.Sprintf(refuses, c.status, c.header)).url)
			got := w.chat(t, "x-routerd-pin", "w1")
			if got.status != c.status || got.body != "no" {
				t.Errorf("got %+v", got)
			}
			if diff := cmp.Diff([]string{c.want}, r.take()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n := w.active(""); n != 0 {
				t.Errorf("%d bookings left", n)
			}
		})
	}
}

func TestARefusalThatIsTriedElsewhereIsReportedToo(t *testing.T) {
	w, r := reported(t)
	w.join(t, "w1", answering(t, refusal("full")).url)
	w.join(t, "w2", answering(t, plain("{}")).url)
	for range 30 { // until a draw falls on w1
		if got := w.chat(t); got.status != 200 {
			t.Fatalf("got %+v", got)
		}
		heard := r.take()
		if diff := cmp.Diff([]string{"w1 refuses for 0s", "w2 well"}, heard); diff == "" {
			return
		} else if diff := cmp.Diff([]string{"w2 well"}, heard); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	t.Error("w1 was never asked")
}

func TestASessionWaitsForItsWorkerThatRefusesOthersPassItOver(t *testing.T) {
	t.Parallel()
	w := start(t, sticky)
	full := "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nno"
	answers := make(chan string, 3)
	answers <- plain("{}")
	answers <- full
	answers <- plain("{}")
	w.join(t, "w1", serve(t, func(p *peer) {
		for {
			if _, ok := p.next(); !ok {
				return
			}
			p.say(<-answers)
		}
	}).url)
	w.join(t, "w2", answering(t, plain("{}")).url)
	if got := w.chat(t, "x-routerd-session", "s", "x-routerd-allow", "w1"); got.status != http.StatusOK {
		t.Fatalf("got %+v", got)
	}
	refused := time.Now()
	if got := w.chat(t, "x-routerd-session", "s"); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "1" {
		t.Fatalf("got %+v, want the worker's refusal", got)
	}
	for range 8 {
		if got := w.chat(t); got.status != http.StatusOK || got.header.Get("X-Routerd-Worker") != "w2" {
			t.Errorf("got %d from %q", got.status, got.header.Get("X-Routerd-Worker"))
		}
	}
	again := w.ask(t.Context(), t, "x-routerd-session", "s")
	eventually(t, "the session's next answer", func() bool {
		w.core.Tick(time.Now())
		return len(again) == 1
	})
	got := <-again
	if took := time.Since(refused); got.status != http.StatusOK || got.header.Get("X-Routerd-Worker") != "w1" || took < time.Second {
		t.Errorf("got %d from %q after %v, want w1 after a second", got.status, got.header.Get("X-Routerd-Worker"), took)
	}
}
