package upstream_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/upstream"
)

// loopback serves an answer at the smallest cost, so that a benchmark shows
// the client.
func loopback(b testing.TB, raw string) upstream.Endpoint {
	return serve(b, func(p *peer) {
		out, buf := []byte(raw), make([]byte, 64<<10)
		for {
			if _, err := p.Read(buf); err != nil {
				return
			}
			if _, err := p.Write(out); err != nil {
				return
			}
		}
	}).ep
}

func roundTrip(b testing.TB, c *upstream.Client, ep upstream.Endpoint, req *fasthttp.Request, hdr *fasthttp.ResponseHeader, call *upstream.Call, buf []byte) {
	body, err := c.Do(call, ep, req, hdr)
	if err != nil {
		b.Fatal(err)
	}
	for err == nil {
		_, err = body.Read(buf)
	}
	if !errors.Is(err, io.EOF) {
		b.Fatal(err)
	}
	body.Close()
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, bc := range []struct{ name, raw string }{
		{"unary 1KB", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000)},
		{"SSE 100 chunks", sse + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk("data: "+strings.Repeat("x", 150)+"\n\n"), 100) + "0\r\n\r\n"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			ep, c := loopback(b, bc.raw), newClient(b, nil)
			req, buf := post(strings.Repeat("x", 1000)), make([]byte, 4096)
			var hdr fasthttp.ResponseHeader
			var call upstream.Call
			b.ReportAllocs()
			for b.Loop() {
				roundTrip(b, c, ep, req, &hdr, &call, buf)
			}
		})
	}
}

func BenchmarkStripRequest(b *testing.B) {
	var h, scratch fasthttp.RequestHeader
	h.SetRequestURI("/v1/chat/completions")
	for _, k := range []string{"Authorization", "Accept", "Accept-Encoding", "X-Stainless-Lang", "X-Stainless-Os", "X-Stainless-Arch", "X-Stainless-Runtime", "X-Request-Id"} {
		h.Set(k, "value")
	}
	h.Set("Connection", "keep-alive")
	b.ReportAllocs()
	for b.Loop() {
		h.CopyTo(&scratch)
		upstream.StripRequest(&scratch)
	}
}

func TestRoundTripOnAKeptConnectionDoesNotAllocate(t *testing.T) {
	ep := loopback(t, sse+"Transfer-Encoding: chunked\r\n\r\n"+chunk("data: 1\n\n")+"0\r\n\r\n")
	c := newClient(t, nil)
	req, buf := post("{}"), make([]byte, 4096)
	var hdr fasthttp.ResponseHeader
	var call upstream.Call
	if n := testing.AllocsPerRun(200, func() { roundTrip(t, c, ep, req, &hdr, &call, buf) }); n != 0 {
		t.Errorf("%v allocations a round trip", n)
	}
}
