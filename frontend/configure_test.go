package frontend_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/frontend"
	"github.com/routerd/routerd/upstream"
)

// reconfigure changes the configuration of a running frontend.
func (w *world) reconfigure(t *testing.T, change func(*frontend.Config)) {
	t.Helper()
	cfg := frontend.DefaultConfig()
	change(&cfg)
	if err := w.Configure(cfg); err != nil {
		t.Fatal(err)
	}
}

const noModel = `{"model":"none","prompt":"`

func TestAConfigurationOutOfRangeChangesNothing(t *testing.T) {
	w := start(t)
	bad := frontend.DefaultConfig()
	bad.Retries, bad.MaxBody = 11, 1<<10
	fe, ok := errors.AsType[*fleet.FieldError](w.Configure(bad))
	if !ok || fe.Field != "retries" {
		t.Errorf("got %v", fe)
	}
	if got := w.do(t, "POST", textPath, noModel+strings.Repeat("x", 4<<10)+`"}`); got.status != http.StatusNotFound {
		t.Errorf("status %d: the refused max_body is in force", got.status)
	}
}

func TestMaxBodyHoldsFromTheNextRequestOn(t *testing.T) {
	w := start(t)
	var got []int
	for _, size := range []int64{16 << 20, 2 << 10, 16 << 20} {
		w.reconfigure(t, func(c *frontend.Config) { c.MaxBody = size })
		got = append(got, w.do(t, "POST", textPath, noModel+strings.Repeat("x", 4<<10)+`"}`).status)
	}
	if diff := cmp.Diff([]int{404, 413, 404}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestHeadersFollowTheConfiguration(t *testing.T) {
	w := start(t)
	wk, requests := recording(t)
	w.join(t, "w1", wk.url)
	ask := func() (int, string) {
		t.Helper()
		got := w.do(t, "POST", textPath, textBody, "X-Forwarded-For", "192.0.2.1", "X-Routerd-Pin", "nobody")
		if got.status != http.StatusOK {
			return got.status, ""
		}
		r := wait(t, "request at the worker", requests)
		return got.status, strings.Join(r.values("X-Forwarded-For"), "|")
	}
	if status, _ := ask(); status != http.StatusBadRequest {
		t.Errorf("an unknown pin got %d while headers are trusted", status)
	}
	w.reconfigure(t, func(c *frontend.Config) { c.TrustHeaders = false })
	if status, forwarded := ask(); status != http.StatusOK || forwarded != "192.0.2.1, 127.0.0.1" {
		t.Errorf("untrusted headers: %d, %q", status, forwarded)
	}
	w.reconfigure(t, func(c *frontend.Config) { c.TrustHeaders, c.ForwardedFor = false, "replace" })
	if status, forwarded := ask(); status != http.StatusOK || forwarded != "127.0.0.1" {
		t.Errorf("replaced: %d, %q", status, forwarded)
	}
}

func TestARequestKeepsTheRetriesThatItBeganWith(t *testing.T) {
	w := start(t)
	asked, answer := make(chan struct{}, 4), make(chan string)
	for _, name := range []string{"w1", "w2"} {
		w.join(t, name, serve(t, func(p *peer) {
			for {
				if _, ok := p.next(); !ok {
					return
				}
				asked <- struct{}{}
				p.say(<-answer)
			}
		}).url)
	}
	got := make(chan outcome, 1)
	ask := func() {
		a, err := w.try(t, client(t), "POST", textPath, textBody)
		got <- outcome{a.status, err}
	}
	go ask()
	wait(t, "first attempt", asked)
	w.reconfigure(t, func(c *frontend.Config) { c.Retries = 0 })
	answer <- refusal("busy")
	wait(t, "second attempt", asked)
	answer <- plain("{}")
	if a := wait(t, "answer", got); a.err != nil || a.status != http.StatusOK {
		t.Errorf("a request of before: %d, %v", a.status, a.err)
	}
	go ask()
	wait(t, "only attempt", asked)
	answer <- refusal("busy")
	if a := wait(t, "answer", got); a.err != nil || a.status != http.StatusServiceUnavailable {
		t.Errorf("a request of after: %d, %v", a.status, a.err)
	}
}

// outcome is an answer that may have failed.
type outcome struct {
	status int
	err    error
}

func TestTheFirstByteTimeoutHoldsFromTheNextRequestOn(t *testing.T) {
	w := start(t, func(su *setup) { su.frontend.Retries = 0 })
	w.join(t, "w1", serve(t, func(p *peer) { _, _ = p.next(); _, _ = p.next() }).url)
	w.upstream.SetFirstByteTimeout(20 * time.Millisecond)
	if got := w.do(t, "POST", textPath, textBody); got.status != http.StatusGatewayTimeout {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if upstream.DefaultConfig().FirstByteTimeout < time.Minute {
		t.Error("the default would have ended it as well")
	}
}

func TestADrainHasTheGraceThatIsInForce(t *testing.T) {
	w := start(t)
	begun := make(chan struct{}, 1)
	w.join(t, "w1", serve(t, func(p *peer) {
		_, _ = p.next()
		begun <- struct{}{}
		_, _ = p.next()
	}).url)
	go func() { _, _ = w.try(t, client(t), "POST", textPath, textBody) }()
	wait(t, "request at the worker", begun)
	w.reconfigure(t, func(c *frontend.Config) { c.Grace = 0 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.Drain(ctx); !errors.Is(err, frontend.ErrGrace) || ctx.Err() != nil {
		t.Errorf("got %v", err)
	}
}

// A connection that was accepted under another half_close ends with its next
// answer, and the next one goes by the new value.
func TestHalfCloseHoldsForConnectionsAcceptedAfterwards(t *testing.T) {
	w := start(t)
	begun, end := make(chan struct{}, 1), make(chan struct{})
	w.join(t, "w1", serve(t, func(p *peer) {
		_, _ = p.next()
		begun <- struct{}{}
		<-end
		p.say(plain("{}"))
	}).url)
	const health = "GET /health HTTP/1.1\r\nHost: r\r\n\r\n"
	old := w.raw(t, health)
	in := bufio.NewReader(old)
	closes := func() bool {
		t.Helper()
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Body.Close() != nil {
			t.Fatal(err)
		}
		return resp.Close
	}
	if closes() {
		t.Error("the connection ended before anything changed")
	}
	w.reconfigure(t, func(c *frontend.Config) { c.HalfClose = "ignore" })
	if _, err := io.WriteString(old, health); err != nil {
		t.Fatal(err)
	}
	if !closes() {
		t.Error("the connection goes on under the old half_close")
	}
	c := w.raw(t, post(textPath, textBody))
	wait(t, "request at the worker", begun)
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	close(end)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("the half-closed client lost its answer: %v", err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, %v", resp.StatusCode, err)
	}
}
