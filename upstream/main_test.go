package upstream_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 5 * time.Second

// peer is a fake worker's side of one connection.
type peer struct {
	net.Conn
	br    *bufio.Reader
	index int // of the connection, from 0
}

// request reads one request; ok is false at the connection's end.
func (p *peer) request() (head string, body []byte, ok bool) {
	var b strings.Builder
	length := 0
	for {
		line, err := p.br.ReadString('\n')
		if err != nil {
			return b.String(), nil, false
		}
		b.WriteString(line)
		if line == "\r\n" {
			break
		}
		if v, found := strings.CutPrefix(strings.ToLower(line), "content-length:"); found {
			length, _ = strconv.Atoi(strings.TrimSpace(v))
		}
	}
	body = make([]byte, length)
	_, err := io.ReadFull(p.br, body)
	return b.String(), body, err == nil
}

func (p *peer) say(s string) { _, _ = io.WriteString(p.Conn, s) }

func (p *peer) reset() {
	_ = p.Conn.(*net.TCPConn).SetLinger(0)
	_ = p.Close()
}

// waitClosed returns when the other side has closed.
func (p *peer) waitClosed() { _, _ = io.Copy(io.Discard, p.br) }

// fake is a fake worker on a port of its own.
type fake struct {
	ep       upstream.Endpoint
	accepted atomic.Int32
}

// serve runs handle for each connection, which is closed after it.
func serve(t testing.TB, handle func(*peer)) *fake { return serveOn(t, "127.0.0.1:0", handle) }

func serveOn(t testing.TB, addr string, handle func(*peer)) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{ep: endpoint(t, "http://"+ln.Addr().String())}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, nc)
			mu.Unlock()
			p := &peer{Conn: nc, br: bufio.NewReader(nc), index: int(f.accepted.Add(1)) - 1}
			wg.Go(func() { defer nc.Close(); handle(p) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, nc := range open {
			nc.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return f
}

// answer serves every request of every connection with the same raw bytes.
func answer(t testing.TB, raw string) *fake {
	t.Helper()
	return serve(t, func(p *peer) {
		for {
			if _, _, ok := p.request(); !ok {
				return
			}
			p.say(raw)
		}
	})
}

func endpoint(t testing.TB, url string) upstream.Endpoint {
	t.Helper()
	ep, err := upstream.ParseEndpoint(url)
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

func newClient(t testing.TB, edit func(*upstream.Config)) *upstream.Client {
	t.Helper()
	cfg := upstream.DefaultConfig()
	if edit != nil {
		edit(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	c := upstream.New(cfg)
	t.Cleanup(func() {
		c.Close()
		if s := c.Stats(); s.Open != 0 || s.Idle != 0 {
			t.Errorf("connections left after Close: %+v", s)
		}
	})
	return c
}

func post(body string) *fasthttp.Request {
	req := &fasthttp.Request{}
	req.Header.SetMethod("POST")
	req.Header.SetRequestURI("/v1/completions")
	req.Header.SetContentType("application/json")
	req.SetBodyRaw([]byte(body))
	return req
}

func method(name string) *fasthttp.Request {
	req := &fasthttp.Request{}
	req.Header.SetMethod(name)
	req.Header.SetRequestURI("/v1/models")
	return req
}

// fetch does a whole call.
func fetch(c *upstream.Client, ep upstream.Endpoint, req *fasthttp.Request) (status int, body string, err error) {
	var call upstream.Call
	var hdr fasthttp.ResponseHeader
	b, err := c.Do(&call, ep, req, &hdr)
	if err != nil {
		return 0, "", err
	}
	defer b.Close()
	all, err := io.ReadAll(b)
	return hdr.StatusCode(), string(all), err
}

func mustFetch(t *testing.T, c *upstream.Client, ep upstream.Endpoint, want string) {
	t.Helper()
	status, body, err := fetch(c, ep, post("{}"))
	if err != nil || status != 200 || body != want {
		t.Fatalf("answer %d %q, error %v; want 200 %q", status, body, err, want)
	}
}

// failed asserts an *Error and returns it.
func failed(t *testing.T, err error) *upstream.Error {
	t.Helper()
	var e *upstream.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want an *upstream.Error", err)
	}
	return e
}

func wait[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing within %v", what, patience)
		panic("unreachable")
	}
}

// pieces is a reader that hands out its parts one by one.
type pieces [][]byte

func (p *pieces) Read(b []byte) (int, error) {
	for len(*p) > 0 && len((*p)[0]) == 0 {
		*p = (*p)[1:]
	}
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*p)[0])
	(*p)[0] = bytes.Clone((*p)[0][n:])
	return n, nil
}
