package upstream_test

import (
	"bufio"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/upstream"
)

func requestHead(t *testing.T, lines string) *fasthttp.RequestHeader {
	t.Helper()
	h := &fasthttp.RequestHeader{}
	raw := "POST /v1/completions HTTP/1.1\r\nHost: h\r\n" + strings.ReplaceAll(lines, "\n", "\r\n") + "\r\n"
	if err := h.Read(bufio.NewReader(strings.NewReader(raw))); err != nil {
		t.Fatal(err)
	}
	return h
}

func written(h interface{ AppendBytes([]byte) []byte }) string {
	s := string(h.AppendBytes(nil))
	_, s, _ = strings.Cut(s, "\r\n")
	s = strings.TrimSuffix(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
	return strings.TrimPrefix(s, "Host: h\n")
}

func TestH2_HopByHopFieldsOfARequestAreStripped(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"nothing to do", "Authorization: Bearer x\nX-A: 1\n", "Authorization: Bearer x\nX-A: 1\n"},
		{
			"all of them, and what Connection names",
			"Connection: close, X-Secret-Hop\nX-Secret-Hop: 1\nKeep-Alive: 5\nTE: trailers\nUpgrade: h2c\nProxy-Authorization: x\nProxy-Authenticate: y\nProxy-Connection: z\nExpect: 100-continue\nTransfer-Encoding: chunked\nAuthorization: Bearer x\nX-Other: 2\n",
			"Authorization: Bearer x\nX-Other: 2\n",
		},
		{"several Connection lines", "Connection: x-a\nX-A: 1\nConnection: keep-alive , ,X-B\nX-B: 2\nX-C: 3\n", "X-C: 3\n"},
		{"close alone", "Connection: close\nX-C: 3\n", "X-C: 3\n"},
		{"what describes the message stays", "Connection: content-length, Content-Type, host, X-A\nContent-Type: a/b\nContent-Length: 3\nX-A: 1\n", "Content-Type: a/b\nContent-Length: 3\n"},
		{"named trailers", "Trailer: X-T\nX-T: early\nX-U: 1\n", "X-U: 1\n"},
		{
			"repeated fields keep their order",
			"Keep-Alive: 5\nX-Tag: 1\nTE: trailers\nVia: a\nX-Tag: 2\nConnection: keep-alive\nX-Tag: 3\nVia: b\n",
			"X-Tag: 1\nX-Tag: 2\nX-Tag: 3\nVia: a\nVia: b\n",
		},
		{"repeated fields that are named go", "Connection: X-Tag\nX-Tag: 1\nX-Tag: 2\nX-K: 1\n", "X-K: 1\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := requestHead(t, tc.in)
			upstream.StripRequest(h)
			if diff := cmp.Diff(tc.want, written(h)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTrailersOfARequestNeverBecomeHeaders(t *testing.T) {
	raw := "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Late\r\nX-A: 1\r\n\r\n2\r\n{}\r\n0\r\nX-Late: 1\r\nX-Routerd-Pin: w1\r\n\r\n"
	var req fasthttp.Request
	if err := req.Read(bufio.NewReader(strings.NewReader(raw))); err != nil {
		t.Fatal(err)
	}
	if len(req.Header.Peek("X-Routerd-Pin")) == 0 {
		t.Fatal("the library no longer shows trailers as headers: this guard has lost its reason")
	}
	upstream.StripRequest(&req.Header)
	if got := req.Header.Peek("X-Routerd-Pin"); len(got) > 0 {
		t.Errorf("trailer is visible as a header: %q", got)
	}
	head, body := sent(t, "", &req)
	if want := "POST / HTTP/1.1\r\nHost: WORKER\r\nContent-Length: 2\r\nX-A: 1\r\n\r\n"; head != want || string(body) != "{}" {
		t.Errorf("sent %q with %q, want %q", head, body, want)
	}
}

func TestH2_HopByHopFieldsOfAnAnswerAreStripped(t *testing.T) {
	w := answer(t, "HTTP/1.1 200 OK\r\nConnection: X-W, close\r\nX-W: 1\r\nKeep-Alive: timeout=5\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\nX-M: 1\r\nRetry-After: 3\r\nX-M: 2\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n0\r\n\r\n")
	var call upstream.Call
	var hdr fasthttp.ResponseHeader
	b, err := newClient(t, nil).Do(&call, w.ep, post("{}"), &hdr)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	upstream.StripResponse(&hdr)
	var got []string
	for k, v := range hdr.All() {
		if string(k) != "Content-Type" {
			got = append(got, string(k)+": "+string(v))
		}
	}
	want := []string{"Set-Cookie: a=1", "Set-Cookie: b=2", "Retry-After: 3", "X-M: 1", "X-M: 2"}
	if diff := cmp.Diff(want, got); diff != "" || hdr.ConnectionClose() {
		t.Errorf("%s, close %v", diff, hdr.ConnectionClose())
	}
}
