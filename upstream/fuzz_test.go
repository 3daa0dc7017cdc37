package upstream_test

import (
	"bytes"
	"io"
	"net/http/httputil"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/upstream"
)

// FuzzChunkedReader asserts that the reader never panics, that its result does
// not depend on how the bytes are cut, and that what it accepts another
// implementation reads alike.
func FuzzChunkedReader(f *testing.F) {
	for _, s := range []string{
		"5\r\nhello\r\n0\r\n\r\n", "0\r\n\r\n", "a;x=y\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\nrest", "5\r\nhel", "fffffffffffffff\r\nx",
		"FFFFFFFFFFFFFFFF\r\n", "-1\r\n\r\n", "3\nabc\n0\n\n", "3 \r\nabc\r\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "0\r\nA: b", "1\r\n\r\n\r\n0\r\n\r\n", "\r\n", ";\r\n",
	} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, raw []byte, step uint8) {
		whole, wholeErr := io.ReadAll(upstream.NewChunkedReader(bytes.NewReader(raw), 1024))
		var cuts pieces
		for rest := raw; len(rest) > 0; {
			n := min(len(rest), int(step)%7+1)
			cuts, rest = append(cuts, rest[:n]), rest[n:]
		}
		cut, cutErr := io.ReadAll(upstream.NewChunkedReader(&cuts, 1024))
		if !bytes.Equal(whole, cut) || (wholeErr == nil) != (cutErr == nil) {
			t.Fatalf("whole: %q, %v; in pieces: %q, %v", whole, wholeErr, cut, cutErr)
		}
		if wholeErr != nil {
			return
		}
		other, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(raw)))
		if err == nil && !bytes.Equal(whole, other) {
			t.Fatalf("read %q, another reader %q", whole, other)
		}
	})
}

// FuzzResponseHead asserts that no head makes the client panic or accept two
// framings.
func FuzzResponseHead(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var hdr fasthttp.ResponseHeader
		if err := upstream.ReadHead(bytes.NewReader(raw), &hdr); err != nil {
			return
		}
		head, _, _ := strings.Cut(strings.ToLower(string(raw)), "\r\n\r\n")
		if hdr.StatusCode() < 200 || (!strings.Contains(head, " 1") && strings.Contains(head, "\r\ncontent-length:") && strings.Contains(head, "\r\ntransfer-encoding:")) {
			t.Fatalf("accepted with status %d", hdr.StatusCode())
		}
	})
}
