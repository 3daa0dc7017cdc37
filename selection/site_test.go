package selection_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/selection"
)

// token is one that a test configures.
const token = "0123456789abcdef-token"

// site is a further service before the core of a world, with a log and a
// registry of its own.
type site struct {
	*world
	log      *testkit.Log
	registry *prometheus.Registry
}

// siteOptions change what a site is made of. Every field may be left out.
type siteOptions struct {
	config   func(*selection.Config)
	parts    func(*selection.Parts)
	patience time.Duration                   // for a request to arrive whole
	listener func(net.Listener) net.Listener // wraps the one that is served
	network  string                          // tcp unless given
}

func newSite(t testing.TB, w *world, o siteOptions) *site {
	t.Helper()
	s := &site{world: &world{core: w.core, cache: w.cache}, log: &testkit.Log{}, registry: prometheus.NewRegistry()}
	cfg, parts := selection.DefaultConfig(), selection.Parts{Core: w.core, Workers: noWorkers{}, Index: noIndex{}}
	if o.config != nil {
		o.config(&cfg)
	}
	if o.parts != nil {
		o.parts(&parts)
	}
	var err error
	log := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if s.srv, err = selection.New(cfg, parts, log, s.registry); err != nil {
		t.Fatal(err)
	}
	if o.patience > 0 {
		s.srv.SetReadTimeout(o.patience)
	}
	ln := listen(t, o.network)
	s.addr = ln.Addr().String()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, ln.Addr().Network(), ln.Addr().String())
	}}
	if o.network == "unix" {
		s.addr = "socket"
	}
	s.http = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	if o.listener != nil {
		ln = o.listener(ln)
	}
	served := make(chan error, 1)
	go func() { served <- s.srv.Serve(ln) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := errors.Join(s.srv.Shutdown(context.Background()), <-served); err != nil {
			t.Error(err)
		}
	})
	return s
}

func listen(t testing.TB, network string) net.Listener {
	t.Helper()
	at := "127.0.0.1:0"
	if network == "" {
		network = "tcp"
	} else if network == "unix" {
		at = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// dial opens a connection that ends with the test.
func (s *site) dial(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// raw sends bytes as they are and reads one answer; status 0 means that the
// connection ended without one.
func (s *site) raw(t testing.TB, first string, more ...string) answer {
	t.Helper()
	c := s.dial(t)
	defer c.Close()
	for _, text := range append([]string{first}, more...) {
		if _, err := io.WriteString(c, text); err != nil {
			break // refused meanwhile: the answer is there
		}
	}
	return next(t, bufio.NewReader(c), strings.Fields(first)[0])
}

// next reads one answer.
func next(t testing.TB, r *bufio.Reader, method string) answer {
	t.Helper()
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return answer{body: []byte(err.Error())}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, text}
}

// request is a request as it is sent.
func request(method, path, body string, headers ...string) string {
	head := method + " " + path + " HTTP/1.1\r\nHost: a\r\n"
	for _, h := range headers {
		head += h + "\r\n"
	}
	if body != "" {
		head += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return head + "\r\n" + body
}

// refused checks the status, and that the error's text and its details have what.
func (a answer) refused(t testing.TB, status int, what string) {
	t.Helper()
	if a.status != status || !strings.Contains(string(a.body), what) {
		t.Errorf("got %d %s, want %d and %q", a.status, a.body, status, what)
		return
	}
	if len(a.body) > 0 && (a.at(t, "error.code") == "absent" || a.header.Get("Content-Type") != "application/json") {
		t.Errorf("not our form: %s", a.body)
	}
}
