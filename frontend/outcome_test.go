package frontend_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
)

// outcomes notes what is reported.
type outcomes struct {
	mu    sync.Mutex
	heard []string
}

func (o *outcomes) Passive(id fleet.WorkerID, what fleet.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := "?"
	for _, n := range []string{"w1", "w2"} {
		if fleet.IDFromName(n) == id {
			name = n
		}
	}
	o.heard = append(o.heard, name+" "+what.String())
}

func (o *outcomes) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	heard := o.heard
	o.heard = nil
	return heard
}

// hearing starts a frontend with short time limits towards its workers.
func hearing(t *testing.T) (*world, *outcomes) {
	o := &outcomes{}
	return start(t, func(s *setup) {
		s.outcomes = o
		s.upstream.FirstByteTimeout, s.upstream.IdleReadTimeout = 200*time.Millisecond, 200*time.Millisecond
	}), o
}

func status(code int) string {
	return fmt.Sprintf("HTTP/1.1 %d Whatever\r\nContent-Length: 2\r\n\r\nno", code)
}

func TestAnAttemptsOutcomeIsReportedOnce(t *testing.T) {
	t.Parallel()
	const long = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
	say := func(raw string) func(p *peer) {
		return func(p *peer) {
			if _, ok := p.next(); ok {
				p.say(raw)
			}
		}
	}
	stall := func(raw string) func(p *peer) {
		return func(p *peer) {
			say(raw)(p)
			p.closedByRouter()
		}
	}
	for _, c := range []struct {
		name   string
		script func(p *peer)
		want   []string
	}{
		{"answer", say(plain("{}")), []string{"w1 success"}},
		{"long answer", say(plain(strings.Repeat("x", 100<<10))), []string{"w1 success"}},
		{"stream", say(sse + event("1") + event("[DONE]") + lastChunk), []string{"w1 success"}},
		{"the request's fault", say(status(400)), nil},
		{"full", say(status(429)), nil},
		{"full too", say(status(503)), nil},
		{"not implemented", say(status(501)), nil},
		{"redirect", say(status(302)), []string{"w1 server_error"}},
		{"500", say(status(500)), []string{"w1 server_error"}},
		{"500 that breaks off", say(strings.Replace(long, "200", "500", 1)), []string{"w1 server_error"}},
		{"504", say(status(504)), []string{"w1 server_error"}},
		{"closes before the answer", say(""), []string{"w1 broken_stream"}},
		{"no HTTP", say("SSH-2.0\r\n\r\n"), []string{"w1 broken_stream"}},
		{"never answers", stall(""), []string{"w1 timeout"}},
		{"closes within the answer", say(long), []string{"w1 broken_stream"}},
		{"closes within the stream", say(sse + event("1")), []string{"w1 broken_stream"}},
		{"pauses within the answer", stall(long), []string{"w1 timeout"}},
		{"pauses within the stream", stall(sse + event("1")), []string{"w1 timeout"}},
		{"stream with an error", say(sse + event(`{"error":{"code":400}}`) + event("[DONE]") + lastChunk), nil},
		{"stream without its last event", say(sse + event("1") + lastChunk), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, o := hearing(t)
			w.join(t, "w1", serve(t, c.script).url)
			_, _ = w.try(t, client(t), "POST", chatPath, chatBody) // some break off
			eventually(t, "the end", func() bool { return w.active("") == 0 && w.metric(t, "routerd_frontend_in_flight") == 0 })
			if diff := cmp.Diff(c.want, o.take()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEachAttemptIsReportedForItsWorker(t *testing.T) {
	w, o := hearing(t)
	gone := serve(t, func(*peer) {})
	gone.ln.Close()
	w.join(t, "w1", gone.url)
	w.join(t, "w2", answering(t, plain("{}")).url)
	for range 30 { // until a draw falls on w1
		if got := w.chat(t); got.status != 200 {
			t.Fatalf("%+v", got)
		}
		heard := o.take()
		if cmp.Equal([]string{"w1 connect_failed", "w2 success"}, heard) {
			return
		}
		if diff := cmp.Diff([]string{"w2 success"}, heard); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	t.Error("w1 was never asked")
}

func TestAClientThatGoesSaysNothingOfTheWorker(t *testing.T) {
	w, o := hearing(t)
	asked := make(chan struct{}, 1)
	w.join(t, "w1", serve(t, func(p *peer) {
		r, ok := p.next()
		if !ok {
			return
		}
		asked <- struct{}{}
		if strings.Contains(string(r.body), "stream") {
			p.say(sse + event("1"))
		}
		p.closedByRouter()
	}).url)
	silent := w.raw(t, post(chatPath, chatBody))
	wait(t, "request", asked)
	silent.Close()
	resp := w.stream(t, &http.Client{Transport: &http.Transport{}})
	wait(t, "request", asked)
	if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	eventually(t, "the end", func() bool { return w.active("") == 0 && w.metric(t, "routerd_frontend_in_flight") == 0 })
	if heard := o.take(); heard != nil {
		t.Errorf("heard %v", heard)
	}
}
