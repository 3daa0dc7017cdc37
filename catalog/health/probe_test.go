package health_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/catalog/health"
)

// raw serves connections on loopback with f and gives its base URL.
func raw(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String()
}

// says answers each connection with a text, once it has sent its request.
func says(text string) func(net.Conn) {
	return func(conn net.Conn) {
		buf := make([]byte, 4096)
		if _, err := conn.Read(buf); err == nil {
			_, _ = io.WriteString(conn, text)
		}
	}
}

// endless answers with a text and then for ever with another, until nobody reads it.
func endless(first, more string) func(net.Conn) {
	more = strings.Repeat(more, 1+4096/len(more))
	return func(conn net.Conn) {
		says(first)(conn)
		for {
			if _, err := io.WriteString(conn, more); err != nil {
				return
			}
		}
	}
}

// drips answers with a text and then with another again and again, slowly, until nobody
// reads it.
func drips(first, more string) func(net.Conn) {
	return func(conn net.Conn) {
		says(first)(conn)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := io.WriteString(conn, more); err != nil {
				return
			}
			<-tick.C
		}
	}
}

// status serves one status with net/http.
func status(t *testing.T, code int) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code == http.StatusFound {
			http.Redirect(w, r, "/elsewhere", code)
			return
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return "http://" + l.Addr().String()
}

func TestProbeOverHTTP(t *testing.T) {
	for _, c := range []struct {
		name   string
		url    string
		word   string
		status int
	}{
		{"200", status(t, 200), "success", 0},
		{"204", status(t, 204), "success", 0},
		{"a redirect is not followed", status(t, 302), "status", 302},
		{"404", status(t, 404), "status", 404},
		{"503", status(t, 503), "status", 503},
		{"nobody listens", closedPort(t), "refused", 0},
		{"no such name", "http://name.invalid:80", "unreachable", 0},
		{"no URL", "http://[", "unreachable", 0},
		{"an interim answer first", raw(t, says("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")), "success", 0},
		{"HTTP/1.0 without a phrase", raw(t, says("HTTP/1.0 200\r\n\r\n")), "success", 0},
		{"no HTTP", raw(t, says("SSH-2.0-OpenSSH_9.6\r\n")), "broken", 0},
		{"another HTTP", raw(t, says("HTTP/2 200\r\n\r\n")), "broken", 0},
		{"a line without end", raw(t, says("HTTP/1.1 200 "+strings.Repeat("x", 1<<17))), "broken", 0},
		{"a head without end", raw(t, endless("HTTP/1.1 200 OK\r\n", "A: b\r\n")), "broken", 0},
		{"a head of one line without end", raw(t, endless("HTTP/1.1 200 OK\r\nA: ", "b")), "broken", 0},
		{"half a head", raw(t, says("HTTP/1.1 200 OK\r\nA: b\r\n")), "broken", 0},
		{"a switch of protocols", raw(t, says("HTTP/1.1 101 Switching Protocols\r\n\r\n")), "status", 101},
		{"endless interim answers", raw(t, endless("", "HTTP/1.1 100 Continue\r\n\r\n")), "broken", 0},
		{"interim answers without end", raw(t, says(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 1<<14))), "broken", 0},
		{"closed at once", raw(t, func(net.Conn) {}), "broken", 0},
		{"half a line", raw(t, says("HTTP/1.1 2")), "broken", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			word, code, err := health.Ask(ctx, c.url, "/health")
			if word != c.word || code != c.status {
				t.Errorf("got %s %d (%v), want %s %d", word, code, err, c.word, c.status)
			}
		})
	}
}

func TestProbeAsksForThePathBelowTheURL(t *testing.T) {
	got := make(chan *http.Request, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }))
	defer s.Close()
	if word, _, err := health.Ask(t.Context(), s.URL+"/engines/a%20b", "/health?deep=1"); word != "success" {
		t.Fatalf("got %s: %v", word, err)
	}
	r := <-got
	if r.Method != http.MethodGet || r.RequestURI != "/engines/a%20b/health?deep=1" || "http://"+r.Host != s.URL {
		t.Errorf("asked %s %s of %s", r.Method, r.RequestURI, r.Host)
	}
}

// A worker that accepts and says nothing, and one whose body never ends.
func TestProbeIsBoundedByItsTimeout(t *testing.T) {
	open := make(chan struct{})
	silent := raw(t, func(net.Conn) { <-open })
	endless := raw(t, func(conn net.Conn) {
		says("HTTP/1.1 200 OK\r\n\r\n")(conn)
		<-open
	})
	defer close(open)
	for name, url := range map[string]string{
		"a silent worker":       silent,
		"a head that drips":     raw(t, drips("HTTP/1.1 200 OK\r\nA: ", "b")),
		"interim ones that do":  raw(t, drips("", "HTTP/1.1 100 Continue\r\n\r\n")),
		"a status without more": raw(t, func(conn net.Conn) { says("HTTP/1.1 200 OK\r\n")(conn); <-open }),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if word, _, err := health.Ask(ctx, url, "/health"); word != "timeout" {
			t.Errorf("%s: %s (%v), want timeout", name, word, err)
		}
		cancel()
	}
	start := time.Now()
	if word, _, err := health.Ask(t.Context(), endless, "/health"); word != "success" || time.Since(start) > 5*time.Second {
		t.Errorf("an endless body: %s (%v) after %v, want success at once", word, err, time.Since(start))
	}
}

func FuzzReadStatus(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 503\r\n", "HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 204 No Content\r\n",
		"HTTP/1.1 099 \r\n", "HTTP/1.1 20", "HTTP/1.1  200\r\n", "HTTP/1.1 2000\r\n", "\n", "HTTP/1.1 101 \r\n", "HTTP/1.1 100 \n\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if code, err := health.ReadStatus(b); err == nil && code != 101 && (code < 200 || code > 999) {
			t.Errorf("status %d of %q", code, b)
		}
	})
}
