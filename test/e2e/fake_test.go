//go:build e2e

package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// seen is a request as it came over a fake worker's socket.
type seen struct {
	line    string
	headers [][2]string // names in lower case
	body    []byte
}

func (s *seen) values(name string) []string {
	var out []string
	for _, h := range s.headers {
		if h[0] == name {
			out = append(out, h[1])
		}
	}
	return out
}

// fake is a worker made of raw TCP, for answers that a simulated engine does
// not give. It is healthy, and tells nothing of itself.
type fake struct {
	url string

	mu       sync.Mutex // guards requests, conns
	requests []*seen
	conns    []net.Conn
}

// startFake serves each POST by answer, on the connection that it came on;
// the connection is closed when answer says so. It ends with the test.
func startFake(t *testing.T, answer func(c net.Conn, req *seen) (more bool)) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{url: "http://" + ln.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			wg.Go(func() { f.serve(c, answer) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		f.mu.Lock()
		for _, c := range f.conns {
			_ = c.Close()
		}
		f.mu.Unlock()
		wg.Wait()
	})
	return f
}

func (f *fake) serve(c net.Conn, answer func(net.Conn, *seen) bool) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
		req, err := readRequest(in)
		if err != nil {
			return
		}
		if method, path, _ := strings.Cut(req.line, " "); method == http.MethodGet {
			status := http.StatusNotFound
			if strings.HasPrefix(path, "/health ") {
				status = http.StatusOK
			}
			say(c, whole(status, "", "{}"))
			continue
		}
		f.mu.Lock()
		f.requests = append(f.requests, req)
		f.mu.Unlock()
		if !answer(c, req) {
			return
		}
	}
}

// all are the POSTs so far.
func (f *fake) all() []*seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*seen(nil), f.requests...)
}

func readRequest(in *bufio.Reader) (*seen, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	s := &seen{line: strings.TrimSpace(line)}
	for {
		if line, err = in.ReadString('\n'); err != nil {
			return nil, err
		}
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			break
		}
		s.headers = append(s.headers, [2]string{strings.ToLower(name), strings.TrimSpace(value)})
	}
	body := io.LimitReader(in, 0)
	if lengths := s.values("content-length"); len(lengths) > 0 {
		n, err := strconv.ParseInt(lengths[0], 10, 64)
		if err != nil {
			return nil, err
		}
		body = io.LimitReader(in, n)
	} else if len(s.values("transfer-encoding")) > 0 {
		body = httputil.NewChunkedReader(in)
	}
	s.body, err = io.ReadAll(body)
	return s, err
}

// say writes to a connection; a peer that has gone is seen elsewhere.
func say(c net.Conn, text string) { _, _ = io.WriteString(c, text) }

// eventStream begins an answer that is a stream of events and ends with the
// connection.
func eventStream(c net.Conn) {
	say(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
}

// whole is an answer with a length.
func whole(status int, header, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), header, len(body), body)
}

const completion = `{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"x","finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

// fakes is the configuration of fake workers w1, w2, … of model m.
func fakes(list ...*fake) string {
	var b strings.Builder
	b.WriteString("models: {m: {block_size: 16, tokenize: \"off\"}}\nworkers:\n  static:\n")
	for i, f := range list {
		fmt.Fprintf(&b, "  - {id: %d, name: w%d, url: %q, model: m}\n", i+1, i+1, f.url)
	}
	return b.String()
}

// dial opens a raw connection to a base URL.
func dial(t *testing.T, base string) net.Conn {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// metrics are the samples of the router's metrics by series.
func (r *router) metrics() map[string]float64 {
	r.t.Helper()
	_, text := r.raw("GET", "/metrics", nil)
	out := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			r.t.Fatalf("metric line %q: %v", line, err)
		}
		out[line[:at]] = v
	}
	return out
}

// sum adds up the series of a metric whose labels contain all the texts.
func sum(metrics map[string]float64, name string, labels ...string) (total float64) {
series:
	for series, v := range metrics {
		if base, _, _ := strings.Cut(series, "{"); base != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(series, l) {
				continue series
			}
		}
		total += v
	}
	return total
}
