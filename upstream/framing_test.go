package upstream_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/upstream"
)

func TestEveryFramingIsReadToItsEndAndKeepsTheConnectionWhenItMay(t *testing.T) {
	for _, tc := range []struct {
		name, raw, method string
		status            int
		body              string
		kept              bool
	}{
		{"content length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "POST", 200, "hello", true},
		{"empty", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "POST", 200, "", true},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=\"y\"\r\nlo\r\n0\r\n\r\n", "POST", 200, "hello", true},
		{"chunked with trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\nA\r\n0123456789\r\n0\r\nX-T: 1\r\nAuthorization: no\r\n\r\n", "POST", 200, "0123456789", true},
		{"until close", "HTTP/1.1 200 OK\r\n\r\nhello", "POST", 200, "hello", false},
		{"connection close", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", "POST", 200, "hello", false},
		{"close among tokens", "HTTP/1.1 200 OK\r\nConnection: x-w, Close\r\nContent-Length: 5\r\n\r\nhello", "POST", 200, "hello", false},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "POST", 200, "hello", false},
		{"HTTP/1.0 keep-alive", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", "POST", 200, "hello", true},
		{"204", "HTTP/1.1 204 No Content\r\n\r\n", "POST", 204, "", true},
		{"304 with length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "GET", 304, "", true},
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", 200, "", true},
		{"HEAD chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HEAD", 200, "", true},
		{"interim answers", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "POST", 200, "hello", true},
		{"no reason phrase", "HTTP/1.1 418 \r\nContent-Length: 5\r\n\r\nhello", "POST", 418, "hello", true},
		{"head beyond the read buffer", "HTTP/1.1 200 OK\r\nX-Big: " + strings.Repeat("b", 20<<10) + "\r\nContent-Length: 5\r\n\r\nhello", "POST", 200, "hello", true},
		{"bytes after the answer", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n", "POST", 200, "hello", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := serve(t, func(p *peer) {
				for {
					if _, _, ok := p.request(); !ok {
						return
					}
					p.say(tc.raw)
					if tc.name == "until close" {
						return
					}
				}
			})
			c := newClient(t, nil)
			for i := range 3 {
				req := method(tc.method)
				if tc.method == "POST" {
					req = post("{}")
				}
				status, body, err := fetch(c, w.ep, req)
				if err != nil || status != tc.status || body != tc.body {
					t.Fatalf("call %d: %d %q, error %v; want %d %q", i, status, body, err, tc.status, tc.body)
				}
			}
			want := int32(3)
			if tc.kept {
				want = 1
			}
			if got := w.accepted.Load(); got != want {
				t.Errorf("%d connections for 3 calls, want %d", got, want)
			}
		})
	}
}

func TestMalformedAnswersAreRefusedInThePhaseWhereTheyShow(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, tc := range []struct {
		name, raw string
		phase     upstream.Phase
		cause     error
	}{
		{"not HTTP", "SSH-2.0-x\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"HTTP/1.2", "HTTP/1.2 200 OK\r\n\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"status of two digits", "HTTP/1.1 20 OK\r\n\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"status 099", "HTTP/1.1 099 OK\r\n\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"line end without CR", ok + "A: b\nContent-Length: 0\r\n\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"length and encoding", ok + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"length and encoding, blank before colon", ok + "transfer-encoding: chunked\r\ncontent-length : 5\r\n\r\n0\r\n\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"two lengths", ok + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", upstream.PhaseHead, upstream.ErrMalformed},
		{"negative length", ok + "Content-Length: -5\r\n\r\nhello", upstream.PhaseHead, upstream.ErrMalformed},
		{"length beyond int64", ok + "Content-Length: 99999999999999999999\r\n\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"unknown encoding", ok + "Transfer-Encoding: gzip\r\n\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"chunks in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"header without colon", ok + "nonsense\r\n\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", upstream.PhaseHead, upstream.ErrMalformed},
		{"endless interim answers", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 40), upstream.PhaseHead, upstream.ErrMalformed},
		{"head of 70 KiB", ok + "X: " + strings.Repeat("x", 70<<10) + "\r\n\r\n", upstream.PhaseHead, upstream.ErrHeadTooLarge},
		{"head cut", ok + "Content-Le", upstream.PhaseHead, io.ErrUnexpectedEOF},
		{"body cut", ok + "Content-Length: 10\r\n\r\nhello", upstream.PhaseBody, io.ErrUnexpectedEOF},
		{"chunk cut", ok + "Transfer-Encoding: chunked\r\n\r\nA\r\nhello", upstream.PhaseBody, io.ErrUnexpectedEOF},
		{"no last chunk", ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", upstream.PhaseBody, io.ErrUnexpectedEOF},
		{"last chunk without end", ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", upstream.PhaseBody, io.ErrUnexpectedEOF},
		{"chunk size not hex", ok + "Transfer-Encoding: chunked\r\n\r\nxyz\r\nhello", upstream.PhaseBody, upstream.ErrMalformed},
		{"chunk size too large", ok + "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\nhello", upstream.PhaseBody, upstream.ErrMalformed},
		{"chunk longer than its size", ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n", upstream.PhaseBody, upstream.ErrMalformed},
		{"chunk line of 9 KiB", ok + "Transfer-Encoding: chunked\r\n\r\n3;" + strings.Repeat("x", 9<<10) + "\r\nabc\r\n", upstream.PhaseBody, upstream.ErrMalformed},
		{"trailers of 20 KiB", ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("X-T: "+strings.Repeat("x", 1000)+"\r\n", 20) + "\r\n", upstream.PhaseBody, upstream.ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := serve(t, func(p *peer) {
				p.request()
				p.say(tc.raw)
			})
			_, _, err := fetch(newClient(t, nil), w.ep, post("{}"))
			e := failed(t, err)
			if e.Phase != tc.phase || !errors.Is(err, tc.cause) {
				t.Errorf("error %v, want phase %v and cause %v", err, tc.phase, tc.cause)
			}
			if e.BytesRead == 0 || e.Retryable() || e.Timeout || e.Cancelled {
				t.Errorf("%+v: must have read bytes and not be retryable", e)
			}
			if strings.Contains(err.Error(), "hello") || len(err.Error()) > 200 {
				t.Errorf("error quotes the answer: %v", err)
			}
		})
	}
}

func TestHeadIsHandedOverWithDuplicates(t *testing.T) {
	w := answer(t, "HTTP/1.1 429 Too Many\r\nRetry-After: 3\r\nX-M: 1\r\nSet-Cookie: a=1\r\nX-M: 2\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\n{}")
	var call upstream.Call
	var hdr fasthttp.ResponseHeader
	b, err := newClient(t, nil).Do(&call, w.ep, post("{}"), &hdr)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.Size() != 2 {
		t.Errorf("Size %d, want 2", b.Size())
	}
	got := fmt.Sprintf("%d %s %s", hdr.StatusCode(), hdr.Peek("Retry-After"), hdr.PeekAll("X-M"))
	if want := "429 3 [1 2]"; got != want {
		t.Errorf("head %q, want %q", got, want)
	}
	var cookies []string
	for key, value := range hdr.All() {
		if string(key) == "Set-Cookie" {
			cookies = append(cookies, string(value))
		}
	}
	if diff := cmp.Diff([]string{"a=1", "b=2"}, cookies); diff != "" {
		t.Error(diff)
	}
}
