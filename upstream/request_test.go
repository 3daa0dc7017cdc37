package upstream_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/upstream"
)

// sent returns what the worker sees of a request.
func sent(t *testing.T, base string, req *fasthttp.Request) (head string, body []byte) {
	t.Helper()
	type seen struct {
		head string
		body []byte
	}
	got := make(chan seen, 1)
	w := serve(t, func(p *peer) {
		head, body, _ := p.request()
		got <- seen{head, body}
		p.say("HTTP/1.1 204 No Content\r\n\r\n")
		p.waitClosed()
	})
	if base != "" {
		_, port, _ := net.SplitHostPort(w.ep.Addr())
		w.ep = endpoint(t, strings.Replace(base, "PORT", port, 1))
	}
	if _, _, err := fetch(newClient(t, nil), w.ep, req); err != nil {
		t.Fatal(err)
	}
	s := wait(t, "request", got)
	return strings.ReplaceAll(s.head, w.ep.Addr(), "WORKER"), s.body
}

func TestRequestGoesOutAsPrepared(t *testing.T) {
	chunked := post("{}")
	chunked.Header.SetContentLength(-1)
	chunked.Header.SetProtocol("HTTP/1.0")
	chunked.Header.SetHost("client.example")
	chunked.Header.Add("X-Tag", "1")
	chunked.Header.Add("X-Tag", "2")
	query := method("GET")
	query.Header.SetRequestURI("/v1/models/a%2Fb//c?x=%20y")
	untyped := post("raw")
	untyped.Header.SetContentType("")
	for _, tc := range []struct {
		name, base string
		req        *fasthttp.Request
		want       string
	}{
		{"framing and host are the worker's", "", chunked, "POST /v1/completions HTTP/1.1\r\nHost: WORKER\r\nContent-Type: application/json\r\nContent-Length: 2\r\nX-Tag: 1\r\nX-Tag: 2\r\n\r\n"},
		{"prefix, path stays raw", "http://localhost:PORT/engine/", query, "GET /engine/v1/models/a%2Fb//c?x=%20y HTTP/1.1\r\nHost: WORKER\r\n\r\n"},
		{"slash at the base's end", "HTTP://127.0.0.1:PORT/", method("GET"), "GET /v1/models HTTP/1.1\r\nHost: WORKER\r\n\r\n"},
		{"no content type is invented", "", untyped, "POST /v1/completions HTTP/1.1\r\nHost: WORKER\r\nContent-Length: 3\r\n\r\n"},
		{"empty post", "", post(""), "POST /v1/completions HTTP/1.1\r\nHost: WORKER\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			head, _ := sent(t, tc.base, tc.req)
			if diff := cmp.Diff(tc.want, head); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestH3_ExactlyOneFramingHeaderReachesTheWorker(t *testing.T) {
	req := post(`{"a":1}`)
	req.Header.SetContentLength(-1)
	head, body := sent(t, "", req)
	if n := strings.Count(strings.ToLower(head), "content-length:") + strings.Count(strings.ToLower(head), "transfer-encoding:"); n != 1 {
		t.Errorf("%d framing headers in %q", n, head)
	}
	if string(body) != `{"a":1}` {
		t.Errorf("body %q", body)
	}
}

func TestB7_LargeBodiesArriveUnchanged(t *testing.T) {
	for _, size := range []int{100 << 10, 1 << 20, 8 << 20} {
		body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		_, got := sent(t, "", post(string(body)))
		if sha256.Sum256(got) != sha256.Sum256(body) {
			t.Errorf("%d bytes: the worker received other %d bytes", size, len(got))
		}
	}
}

func TestUnsendableRequestsAreRefusedBeforeTheNetwork(t *testing.T) {
	stream := post("")
	stream.SetBodyStream(strings.NewReader("x"), 1)
	absolute := method("GET")
	absolute.Header.SetRequestURI("http://elsewhere/v1")
	split := method("GET")
	split.Header.SetRequestURI("/a HTTP/1.1\r\nX: y")
	w := answer(t, "HTTP/1.1 204 No Content\r\n\r\n")
	c := newClient(t, nil)
	for name, req := range map[string]*fasthttp.Request{
		"body stream": stream, "absolute target": absolute, "split request": split, "CONNECT": method("CONNECT"),
	} {
		_, _, err := fetch(c, w.ep, req)
		if e := failed(t, err); e.Phase != upstream.PhasePrepare || !errors.Is(err, upstream.ErrBadRequest) || e.Retryable() {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, _, err := fetch(c, upstream.Endpoint{}, post("{}"))
	if e := failed(t, err); e.Phase != upstream.PhasePrepare {
		t.Errorf("no endpoint: %v", err)
	}
	c.Close()
	if _, _, err := fetch(c, w.ep, post("{}")); !errors.Is(err, upstream.ErrClosed) {
		t.Errorf("closed client: %v", err)
	}
	if n := w.accepted.Load(); n != 0 {
		t.Errorf("%d connections reached the worker", n)
	}
}

func TestHeadAndBodyLeaveInOneWrite(t *testing.T) {
	first := make(chan int, 1)
	w := serve(t, func(p *peer) {
		buf := make([]byte, 64<<10)
		n, _ := p.Read(buf)
		first <- n
		p.say("HTTP/1.1 204 No Content\r\n\r\n")
	})
	body := strings.Repeat("x", 4000)
	if _, _, err := fetch(newClient(t, nil), w.ep, post(body)); err != nil {
		t.Fatal(err)
	}
	if n := wait(t, "first read", first); n <= len(body) {
		t.Errorf("the first read got %d bytes, want head and body together", n)
	}
}
