package frontend_test

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
)

// inTurn makes two workers that answer a request's attempts with one raw answer
// each, whichever of them is asked first.
func (w *world) inTurn(t testing.TB, answers ...string) {
	t.Helper()
	var asked atomic.Int64
	for _, name := range []string{"w1", "w2"} {
		w.join(t, name, serve(t, func(p *peer) {
			for {
				if _, ok := p.next(); !ok {
					return
				}
				p.say(answers[int(asked.Add(1)-1)%len(answers)])
			}
		}).url)
	}
}

// refusal is a 503 whose header and body belong together.
func refusal(name string) string {
	return fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nX-From: %s\r\nContent-Length: %d\r\n\r\n%[1]s", name, len(name))
}

func TestAfterARefusalTheNextAnswerIsWholeItsOwn(t *testing.T) {
	const length = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
	long := strings.Repeat("x", 100<<10)
	for _, c := range []struct{ name, raw, body string }{
		{"short", plain(`{"good":1}`), `{"good":1}`},
		{"empty", length + "0\r\n\r\n", ""},
		{"long", plain(long), long},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("{") + chunk("}") + lastChunk, "{}"},
		{"events", sse + event("1") + event("[DONE]") + lastChunk, "data: 1\n\ndata: [DONE]\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := start(t)
			w.inTurn(t, refusal("refused"), c.raw)
			if got := w.chat(t); got.status != 200 || got.body != c.body || got.header.Get("X-From") != "" {
				t.Errorf("%d %.40q, header %v", got.status, got.body, got.header)
			}
			old := w.raw(t, strings.Replace(post(chatPath, chatBody), "HTTP/1.1", "HTTP/1.0", 1))
			b, err := io.ReadAll(old)
			if _, body, _ := strings.Cut(string(b), "\r\n\r\n"); err != nil || body != c.body {
				t.Errorf("HTTP/1.0: %.200q, %v", b, err)
			}
			if k := w.released.kinds(); k["failed"] != 0 {
				t.Errorf("bookings ended as %v", k)
			}
		})
	}
}

func TestOfTwoRefusalsHeaderAndBodyBelongTogether(t *testing.T) {
	w := start(t)
	w.inTurn(t, refusal("first"), refusal("the second"))
	if got := w.chat(t); got.status != 503 || got.body != "the second" || got.header.Get("X-From") != "the second" {
		t.Errorf("%d %q %v", got.status, got.body, got.header)
	}
}
