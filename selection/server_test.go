package selection_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/selection"
)

func TestAConfigurationOutOfRangeNamesTheField(t *testing.T) {
	for field, change := range map[string]func(*selection.Config){
		"max_body":          func(c *selection.Config) { c.MaxBody = 1023 },
		"half_close":        func(c *selection.Config) { c.HalfClose = "maybe" },
		"token":             func(c *selection.Config) { c.Token = "short" },
		"policy_headers[1]": func(c *selection.Config) { c.PolicyHeaders = []string{"x-a", "authorization"} },
	} {
		cfg := selection.DefaultConfig()
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&cfg)
		err := cfg.Validate()
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("got %v, want %s", err, field)
		}
		if field == "token" && strings.Contains(err.Error(), "short") {
			t.Errorf("the error holds the token: %v", err)
		}
		if _, err := selection.New(cfg, selection.Parts{}, nil, prometheus.NewRegistry()); err == nil {
			t.Errorf("%s: a server was made", field)
		}
	}
}

func TestConfigureHoldsForTheNextCall(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{})
	s.do(t, "GET", "/ready", "").want(t, 503)
	cfg := selection.DefaultConfig()
	cfg.Token, cfg.MaxBody = token, 1024
	if err := s.srv.Configure(cfg); err != nil {
		t.Fatal(err)
	}
	s.do(t, "GET", "/ready", "").want(t, 401)
	big := `{"token_ids":[` + strings.Repeat("1,", 1000) + `1]}`
	s.post(t, "/select", big, "Authorization", "Bearer "+token).want(t, 413)
	cfg.MaxBody = 1
	if err := s.srv.Configure(cfg); err == nil {
		t.Error("a configuration out of range was accepted")
	}
	s.do(t, "GET", "/ready", "", "Authorization", "Bearer "+token).want(t, 503)
}

func TestAUnixSocketIsServed(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{network: "unix"})
	s.do(t, "GET", "/health", "").want(t, 200)
	id := s.post(t, "/select_and_reserve", aBooking).want(t, 200).at(t, "selection_id")
	s.do(t, "DELETE", "/reservations/"+id, "").want(t, 200)
}

func TestShutdownCancelsWhatWaitsAndCutsWhatDoesNotEnd(t *testing.T) {
	w := newWorld(t, options{core: queueing})
	w.join(t, worker(1))
	srv, err := selection.New(selection.DefaultConfig(), selection.Parts{Core: w.core, Workers: noWorkers{}, Index: noIndex{}}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ln := listen(t, "")
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := srv.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	dial := func(text string) net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c
	}
	idle := dial("")                                                                 // says nothing
	slow := dial("POST /select HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{") // never sends its body
	w.post(t, "/select_and_reserve", aBooking).want(t, 200)
	call := dial(request("POST", "/select", aBooking)) // waits in the queue
	testkit.Until(t, "it waits", func() bool { return w.waiting() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := srv.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("took %v", took)
	}
	serving.Wait()
	if w.waiting() != 0 {
		t.Error("a call still waits")
	}
	for name, c := range map[string]net.Conn{"idle": idle, "slow": slow, "waiting": call} {
		text, err := io.ReadAll(c)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: still open", name)
		}
		if name == "waiting" && !strings.HasPrefix(string(text), "HTTP/1.1 503 ") {
			t.Errorf("%s: got %q", name, text)
		}
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Errorf("a second shutdown: %v", err)
	}
	if err := srv.Serve(listen(t, "")); !errors.Is(err, selection.ErrServed) {
		t.Errorf("a second Serve: %v", err)
	}
}

// A call that waits in the queue does not use up the grace of those that work.
func TestShutdownRefusesAtOnceWhoWaitsInTheQueue(t *testing.T) {
	w := newWorld(t, options{core: queueing})
	w.join(t, worker(1))
	w.post(t, "/select_and_reserve", aBooking).want(t, 200)
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, request("POST", "/select", aBooking)); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "it waits", func() bool { return w.waiting() == 1 })
	start := time.Now()
	if err := w.srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	if text, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 503 ") {
		t.Errorf("got %q, %v", text, err)
	}
}

// A server that is stopped before or while it begins to serve does not serve.
func TestShutdownWinsOverAServeThatBegins(t *testing.T) {
	parts := selection.Parts{Core: two(t, options{}).core, Workers: noWorkers{}, Index: noIndex{}}
	for range 50 {
		srv, err := selection.New(selection.DefaultConfig(), parts, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		ln := listen(t, "")
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ln) }()
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-served:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("it serves after Shutdown")
		}
	}
}

func TestServeEndsWhenTheListenerFails(t *testing.T) {
	srv, err := selection.New(selection.DefaultConfig(), selection.Parts{Core: two(t, options{}).core, Workers: noWorkers{}, Index: noIndex{}},
		slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ln := listen(t, "")
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := srv.Serve(ln); err == nil {
		t.Error("Serve returned nothing for a closed listener")
	}
}

// panicking is a core with a bug.
type panicking struct{ selection.Core }

func (panicking) Select(context.Context, *core.Request) (*core.Selection, error) {
	panic("Bearer sk-CANARY-1")
}

// telling are workers whose errors hold a secret.
type telling struct{ noWorkers }

func (telling) Put(context.Context, fleet.Record) (selection.Worker, error) {
	return selection.Worker{}, errors.New(`put "http://user:CANARY2@127.0.0.1:9"`)
}

func TestAPanicIsAnErrorOfOneCall(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{parts: func(p *selection.Parts) { p.Core = panicking{p.Core} }})
	s.post(t, "/select", aBooking).refused(t, 500, `"internal"`)
	s.do(t, "GET", "/health", "").want(t, 200)
	if s.log.Count("panicked") != 1 {
		t.Errorf("log: %s", s.log)
	}
}

func TestT3_NoSecretLeavesTheService(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{
		config: func(c *selection.Config) { c.Token = token + "-CANARY3" },
		parts:  func(p *selection.Parts) { p.Core, p.Workers = panicking{p.Core}, telling{} },
	})
	const canary = "Authorization: Bearer sk-CANARY-1"
	good := "Authorization: Bearer " + token + "-CANARY3"
	var said []string
	keep := func(a answer, status int) {
		t.Helper()
		said = append(said, string(a.body))
		for name, values := range a.header {
			said = append(said, name+strings.Join(values, ""))
		}
		a.want(t, status)
	}
	keep(s.raw(t, request("GET", "/health", "", canary)), 200)
	keep(s.raw(t, request("GET", "/workers", "", canary)), 401)
	keep(s.raw(t, request("GET", "/workers", "", good, "X-Secret: sk-CANARY-1")), 200)
	keep(s.raw(t, request("POST", "/select", "ab", canary, "Content-Length: 1")), 400)
	keep(s.raw(t, request("GET", "/ready", "", canary, "no colon CANARY")), 400)
	keep(s.raw(t, request("POST", "/select", aBooking, good)), 500)
	keep(s.raw(t, request("POST", "/workers", `{"worker_id":1,"endpoint":"http://127.0.0.1:9"}`, good)), 500)
	keep(s.raw(t, request("POST", "/workers", `{"worker_id":1,"endpoint":"http://user:CANARY2@127.0.0.1:9"}`, good)), 400)
	keep(s.raw(t, request("POST", "/workers", `{"worker_id":1,"endpoint":"http://user:CANARY2@[::1"}`, good)), 400)
	keep(s.raw(t, request("GET", "/CANARY", "", good)), 404)
	keep(s.raw(t, request("GET", "/openapi.json", "", good)), 200)
	log := s.log.String()
	if !strings.Contains(log, "panicked") || !strings.Contains(log, "failed") {
		t.Errorf("log: %s", log)
	}
	for _, text := range append(said, log) {
		if i := strings.Index(text, "CANARY"); i >= 0 {
			t.Errorf("a secret came out: …%.200s", text[max(i-100, 0):])
		}
	}
}
